package tavern

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Transport is how a session is connected.
type Transport string

// The transports, in the order in which a client tries them.
const (
	WebSocket Transport = "websocket"
	SSE       Transport = "sse"
	Poll      Transport = "poll"
)

// Options are those of a client. The zero value connects without a credential.
type Options struct {
	// A token.
	Token string
	// GetToken returns a token. It is called for the first one, shortly before the present one expires, and when the server says that it
	// has expired. If it fails, it is called again after a delay.
	GetToken func(ctx context.Context) (string, error)
	// A name instead of a token, in dev mode.
	User string
	// Other addresses of the same cluster, tried when one does not answer.
	MoreURLs []string
	// The transports to try, in this order; by default WebSocket, SSE and Poll.
	Transports []Transport
	// Statuses asks for the statuses of all followed users when a session starts; see Me.OnStatuses.
	Statuses bool
	// NoEcho leaves out the messages that this client published itself.
	NoEcho bool
	// Resume continues a session that another process suspended; see Client.Ticket.
	Resume *Ticket
	// How long a command may take, reconnects included; 30 seconds by default. The context of the call may end it earlier.
	CommandTimeout time.Duration
	// How long an attempt to connect may take, up to the answer to hello; 10 seconds by default.
	ConnectTimeout time.Duration
	// HTTPClient makes all requests, those of WebSockets included: for own certificates or proxies. Its Timeout is not used.
	HTTPClient *http.Client
	// Debug receives one line for each step of the connection. The lines contain no secrets.
	Debug func(line string)
}

// Ticket is what resumes a session: its secret and the number of the last event.
type Ticket struct {
	Session string `json:"session"`
	Seq     int64  `json:"seq"`
}

const (
	defaultCommandTimeout = 30 * time.Second
	defaultConnectTimeout = 10 * time.Second
)

// settings are checked options.
type settings struct {
	addresses   []address
	transports  []Transport
	getToken    func(ctx context.Context) (string, error)
	user        string
	statuses    bool
	noEcho      bool
	timeout     time.Duration
	openTimeout time.Duration
	http        *http.Client
	debug       func(line string)
}

func (o Options) check(url string) (settings, error) {
	checked := settings{getToken: o.GetToken, user: o.User, statuses: o.Statuses, noEcho: o.NoEcho, timeout: o.CommandTimeout, openTimeout: o.ConnectTimeout, debug: o.Debug}
	for _, one := range append([]string{url}, o.MoreURLs...) {
		parsed, err := parseAddress(one)
		if err != nil {
			return settings{}, err
		}
		checked.addresses = append(checked.addresses, parsed)
	}
	given := 0
	for _, one := range []bool{o.Token != "", o.GetToken != nil, o.User != ""} {
		if one {
			given++
		}
	}
	if given > 1 {
		return settings{}, fmt.Errorf("tavern: give only one of Token, GetToken and User")
	}
	checked.transports = o.Transports
	if len(checked.transports) == 0 {
		checked.transports = []Transport{WebSocket, SSE, Poll}
	}
	for _, one := range checked.transports {
		if one != WebSocket && one != SSE && one != Poll {
			return settings{}, fmt.Errorf("tavern: unknown transport %q", string(one))
		}
	}
	if checked.timeout <= 0 {
		checked.timeout = defaultCommandTimeout
	}
	if checked.openTimeout <= 0 {
		checked.openTimeout = defaultConnectTimeout
	}
	checked.http = &http.Client{Transport: http.DefaultTransport}
	if o.HTTPClient != nil {
		copied := *o.HTTPClient
		copied.Timeout = 0
		checked.http = &copied
	}
	// A redirect would carry the token to another address.
	checked.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if checked.debug == nil {
		checked.debug = func(string) {}
	}
	return checked, nil
}

// remaining is the time until a token expires, if it says when.
func remaining(token string) (time.Duration, bool) {
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		return 0, false
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return 0, false
	}
	var read struct {
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(claims, &read) != nil || read.Exp == nil {
		return 0, false
	}
	left := *read.Exp - float64(time.Now().UnixMilli())/1000
	const year = 365 * 24 * 3600
	if left > year {
		left = year
	}
	return time.Duration(left * float64(time.Second)), true
}
