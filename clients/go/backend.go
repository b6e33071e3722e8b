package tavern

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	// How far the clocks of sender and receiver of a webhook may differ.
	webhookTolerance = 5 * time.Minute
)

// Backend is the server API with an API key, for services. It has no session.
type Backend struct {
	address address
	key     string
	http    *http.Client
}

// NewBackend makes a Backend for the server at url.
func NewBackend(url, key string) (*Backend, error) {
	parsed, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	return &Backend{address: parsed, key: key, http: &http.Client{Timeout: requestTimeout}}, nil
}

// PublishResult is what became of one message of several.
type PublishResult struct {
	Channel   string `json:"channel"`
	Receivers int    `json:"receivers"`
	// Why this message was refused, or nil.
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// Publish publishes one message.
func (b *Backend) Publish(ctx context.Context, channel string, data any) (Published, error) {
	raw, err := b.Call(ctx, http.MethodPost, []string{"channels", channel, "messages"}, nil, map[string]any{"data": data})
	if err != nil {
		return Published{}, err
	}
	published := Published{Position: readPosition(raw)}
	err = decode(raw, &published)
	return published, err
}

// Broadcast publishes the same data to several channels; it gives a result for each.
func (b *Backend) Broadcast(ctx context.Context, channels []string, data any) ([]PublishResult, error) {
	return b.results(ctx, "broadcast", map[string]any{"channels": channels, "data": data})
}

// ChannelMessage is a message and its channel.
type ChannelMessage struct {
	Channel string `json:"channel"`
	Data    any    `json:"data"`
}

// PublishMany publishes several messages; it gives a result for each.
func (b *Backend) PublishMany(ctx context.Context, messages []ChannelMessage) ([]PublishResult, error) {
	return b.results(ctx, "publish", map[string]any{"messages": messages})
}

func (b *Backend) results(ctx context.Context, path string, body any) ([]PublishResult, error) {
	raw, err := b.Call(ctx, http.MethodPost, []string{path}, nil, body)
	if err != nil {
		return nil, err
	}
	var read struct {
		Results []PublishResult `json:"results"`
	}
	err = decode(raw, &read)
	return read.Results, err
}

// SendToInbox sends an inbox message to a user.
func (b *Backend) SendToInbox(ctx context.Context, user string, data any) error {
	_, err := b.Call(ctx, http.MethodPost, []string{"users", user, "messages"}, nil, map[string]any{"data": data})
	return err
}

// Who is a page of who is present in a channel; after is "" for the first one.
func (b *Backend) Who(ctx context.Context, channel, after string) (Members, error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	raw, err := b.Call(ctx, http.MethodGet, []string{"channels", channel, "presence"}, query, nil)
	if err != nil {
		return Members{}, err
	}
	var page Members
	err = decode(raw, &page)
	return page, err
}

// DisconnectOptions are those of Disconnect.
type DisconnectOptions struct {
	// The close code, from 4000 to 4999.
	Code   int    `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Clients that stay.
	Except      []string `json:"except,omitempty"`
	AllowResume bool     `json:"allow_resume,omitempty"`
}

// Disconnect ends the sessions of a user.
func (b *Backend) Disconnect(ctx context.Context, user string, options DisconnectOptions) error {
	_, err := b.Call(ctx, http.MethodPost, []string{"users", user, "disconnect"}, nil, options)
	return err
}

// Ban lets a user open no session until then; the zero time: until Unban.
func (b *Backend) Ban(ctx context.Context, user, reason string, until time.Time) error {
	body := map[string]any{"reason": reason}
	if !until.IsZero() {
		body["until"] = until.UnixMilli()
	}
	_, err := b.Call(ctx, http.MethodPut, []string{"users", user, "ban"}, nil, body)
	return err
}

// Unban lifts the ban of a user.
func (b *Backend) Unban(ctx context.Context, user string) error {
	_, err := b.Call(ctx, http.MethodDelete, []string{"users", user, "ban"}, nil, nil)
	return err
}

// NewEvent is an event to be published to a topic.
type NewEvent struct {
	// An event with the same id is accepted once.
	ID   string `json:"id,omitempty"`
	Type string `json:"type"`
	URL  string `json:"url,omitempty"`
	Data any    `json:"data,omitempty"`
}

// PublishEvents publishes events to a topic: all or none. When it returns without an error they are stored.
func (b *Backend) PublishEvents(ctx context.Context, topic string, events ...NewEvent) error {
	_, err := b.Call(ctx, http.MethodPost, []string{"topics", topic, "events"}, nil, events)
	return err
}

// PulledEvent is an event of a subscription.
type PulledEvent struct {
	Seq   int64           `json:"seq"`
	ID    string          `json:"id"`
	Topic string          `json:"topic"`
	Type  string          `json:"type"`
	URL   string          `json:"url"`
	Time  int64           `json:"time"`
	Data  json.RawMessage `json:"data"`
}

// Pull returns the events of a subscription after this number, and acknowledges those before. Without new events it waits, at most
// this long.
func (b *Backend) Pull(ctx context.Context, subscription string, after int64, wait time.Duration) ([]PulledEvent, error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	raw, err := b.request(ctx, http.MethodGet, []string{"subscriptions", subscription, "events"}, query, nil, wait+requestTimeout)
	if err != nil {
		return nil, err
	}
	var read struct {
		Events []PulledEvent `json:"events"`
	}
	err = decode(raw, &read)
	return read.Events, err
}

// Call makes any request of the server API: /v1/ and the segments of the path, which are escaped.
func (b *Backend) Call(ctx context.Context, method string, path []string, query url.Values, body any) (json.RawMessage, error) {
	return b.request(ctx, method, path, query, body, requestTimeout)
}

func (b *Backend) request(ctx context.Context, method string, path []string, query url.Values, body any, timeout time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		encoded, err := encode(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	target := "/v1"
	for _, segment := range path {
		target += "/" + url.PathEscape(segment)
	}
	request, err := http.NewRequestWithContext(ctx, method, b.address.url("http", target, query), content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+b.key)
	request.Header.Set("Content-Type", "application/json")
	client := *b.http
	client.Timeout = 0
	answer, err := client.Do(request)
	if err != nil {
		return nil, &Error{Code: CodeUnreachable, Message: err.Error(), cause: err}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, &Error{Code: CodeUnreachable, Message: err.Error(), cause: err}
	}
	if answer.StatusCode < 300 {
		return text, nil
	}
	var read struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(text, &read) != nil || len(read.Error) == 0 {
		return nil, newError(CodeUnexpectedAnswer, fmt.Sprintf("HTTP status %d; is this a Tavern server?", answer.StatusCode))
	}
	return nil, errorFromWire(read.Error)
}

// UserToken is what a token says about a user.
type UserToken struct {
	User string
	// The display name, if there is one.
	Name string
	// How long it is valid; one hour by default.
	TTL time.Duration
	// The rights per channel pattern, for example {"game#*": {"subscribe", "publish"}}; nil: those of the server's configuration.
	Allow map[string][]string
}

// SignToken makes a token, signed with the secret of the server (HS256).
func SignToken(secret string, given UserToken) (string, error) {
	ttl := given.TTL
	if ttl == 0 {
		ttl = time.Hour
	}
	claims := members{"sub": given.User, "exp": time.Now().Add(ttl).Unix()}
	if given.Name != "" {
		claims["name"] = given.Name
	}
	if given.Allow != nil {
		claims["allow"] = given.Allow
	}
	encoded, err := encode(claims)
	if err != nil {
		return "", err
	}
	url := base64.RawURLEncoding
	text := url.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + url.EncodeToString(encoded)
	return text + "." + url.EncodeToString(sign([]byte(secret), text)), nil
}

// VerifyWebhook reports whether a webhook is signed with this secret ("whsec_…") and is not too old. body is what was received,
// unchanged.
func VerifyWebhook(secret string, header http.Header, body []byte) bool {
	return verifyWebhook(secret, header, body, time.Now())
}

func verifyWebhook(secret string, header http.Header, body []byte, now time.Time) bool {
	sent := header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil {
		return false
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > webhookTolerance || age < -webhookTolerance {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return false
	}
	expected := sign(key, header.Get("webhook-id")+"."+sent+"."+string(body))
	valid := false
	for _, one := range strings.Fields(header.Get("webhook-signature")) {
		if given, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1,")); err == nil && strings.HasPrefix(one, "v1,") {
			valid = hmac.Equal(given, expected) || valid
		}
	}
	return valid
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
