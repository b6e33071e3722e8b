package tavern

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	answerTimeout = 20 * time.Second
	pollTime      = 15 * time.Second
	// The largest message size that a server can be configured for, and its envelope.
	maxBody = 66 << 20
	// What a close code says.
	closeSuperseded, closeTokenExpired = 4000, 4001
	closeStopFirst, closeStopLast      = 4000, 4499
)

// hello is the answer of the server to a new connection.
type hello struct {
	Session     string          `json:"session"`
	Client      string          `json:"client"`
	User        *string         `json:"user"`
	Node        string          `json:"node"`
	Resumed     bool            `json:"resumed"`
	Reset       bool            `json:"reset"`
	HeartbeatMS int64           `json:"heartbeat_ms"`
	FrameBytes  int             `json:"frame_bytes"`
	Party       json.RawMessage `json:"party"`
}

// link is one connection of a session. Its errors are *linkLost, *linkRefused (another transport may work) or *Error (the server
// refuses).
type link interface {
	// open sends hello and returns its answer.
	open(ctx context.Context) (*hello, error)
	// send sends a command. Over HTTP it returns the reply.
	send(ctx context.Context, text []byte) (*frame, error)
	// receive waits for the next frames. None at all still shows that the connection is alive.
	receive(ctx context.Context) ([]*frame, error)
	close()
}

// access is what a link needs to know.
type access struct {
	address  address
	http     *http.Client
	token    string
	user     string
	statuses bool
	ticket   Ticket
	// How long opening may take, up to the answer to hello.
	openTimeout time.Duration
	// The number of the last event that was received; it acknowledges a poll.
	seq func() int64
}

// query has no secret: URLs end up in the logs of proxies.
func (a *access) query() url.Values {
	query := url.Values{}
	if a.user != "" && a.token == "" {
		query.Set("user", a.user)
	}
	return query
}

func (a *access) header() http.Header {
	header := http.Header{}
	if a.token != "" {
		header.Set("Authorization", "Bearer "+a.token)
	}
	return header
}

// helloMembers are those of a hello as a command.
func (a *access) helloMembers() members {
	sent := members{"op": "hello"}
	if a.ticket.Session != "" {
		sent["session"], sent["seq"] = a.ticket.Session, a.ticket.Seq
	}
	if a.statuses {
		sent["status"] = true
	}
	return sent
}

func newLink(transport Transport, given access) link {
	switch transport {
	case WebSocket:
		return &webSocketLink{access: given}
	case SSE:
		return &sseLink{httpLink: httpLink{access: given}}
	default:
		return &pollLink{httpLink: httpLink{access: given}}
	}
}

func readHello(f *frame) (*hello, error) {
	ok, err := f.answer()
	if err != nil {
		return nil, err
	}
	read := &hello{}
	if json.Unmarshal(ok, read) != nil || read.Session == "" {
		return nil, &linkLost{why: "the server sent an invalid reply to hello"}
	}
	return read, nil
}

// refusalOf maps an unexpected answer: an error of the server, or of a proxy in between.
func refusalOf(status int, body []byte) error {
	var read struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &read) == nil && len(read.Error) > 0 && read.Error[0] == '{' {
		return errorFromWire(read.Error)
	}
	if status >= 500 {
		return &linkLost{why: fmt.Sprintf("HTTP status %d", status)}
	}
	return &linkRefused{why: fmt.Sprintf("HTTP status %d", status)}
}
