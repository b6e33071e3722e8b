package tavern

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/coder/websocket"
)

type webSocketLink struct {
	access
	socket *websocket.Conn
}

func (l *webSocketLink) open(ctx context.Context) (*hello, error) {
	ctx, cancel := context.WithTimeout(ctx, l.openTimeout)
	defer cancel()
	query := l.query()
	// Token and session secret are sent in hello, never in the URL.
	query.Set("hello", "no")
	options := &websocket.DialOptions{HTTPClient: l.http, CompressionMode: websocket.CompressionDisabled}
	socket, response, err := websocket.Dial(ctx, l.address.url("http", "/v1/connect", query), options)
	if err != nil {
		if response == nil {
			return nil, &linkLost{why: fmt.Sprintf("cannot reach %s: %v", l.address.host, err), unsent: true}
		}
		if response.StatusCode != 101 && response.Body != nil {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
			return nil, refusalOf(response.StatusCode, body)
		}
		return nil, &linkRefused{why: fmt.Sprintf("the WebSocket handshake failed: %v", err)}
	}
	l.socket = socket
	socket.SetReadLimit(maxBody)
	sent := l.helloMembers()
	sent["id"] = "hello"
	if l.token != "" {
		sent["token"] = l.token
	}
	text, err := sent.encode()
	if err != nil {
		return nil, err
	}
	if _, err := l.send(ctx, text); err != nil {
		return nil, err
	}
	frames, err := l.receive(ctx)
	if err != nil {
		return nil, err
	}
	return readHello(frames[0])
}

func (l *webSocketLink) send(ctx context.Context, text []byte) (*frame, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := l.socket.Write(ctx, websocket.MessageText, text); err != nil {
		return nil, socketLost(err)
	}
	return nil, nil
}

func (l *webSocketLink) receive(ctx context.Context) ([]*frame, error) {
	_, text, err := l.socket.Read(ctx)
	if err != nil {
		return nil, socketLost(err)
	}
	read, err := parseFrame(text)
	if err != nil {
		return nil, err
	}
	return []*frame{read}, nil
}

func (l *webSocketLink) close() {
	if l.socket != nil {
		_ = l.socket.CloseNow()
	}
}

func socketLost(err error) error {
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		return &linkLost{why: fmt.Sprintf("closed: %d %s", int(closed.Code), closed.Reason), code: int(closed.Code)}
	}
	return &linkLost{why: fmt.Sprintf("the connection has ended: %v", err)}
}
