package tavern

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// httpLink is what SSE and long-poll share: commands are sent one request at a time, which keeps their order.
type httpLink struct {
	access
}

func (l *httpLink) send(ctx context.Context, text []byte) (*frame, error) {
	session, err := encode(members{"session": l.ticket.Session})
	if err != nil {
		return nil, err
	}
	body := append(append(session[:len(session)-1], ','), text[1:]...)
	var named struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, err
	}
	reply, err := l.post(ctx, "/v1/command", body, answerTimeout)
	if err != nil {
		return nil, err
	}
	reply.ID = named.ID
	return reply, nil
}

func (l *httpLink) post(ctx context.Context, path string, body []byte, timeout time.Duration) (*frame, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.address.url("http", path, l.query()), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = l.header()
	request.Header.Set("Content-Type", "application/json")
	answer, err := l.http.Do(request)
	if err != nil {
		return nil, l.lost(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return nil, l.lost(err)
	}
	if len(text) > maxBody {
		return nil, &linkLost{why: "the answer is too large"}
	}
	read, err := parseFrame(text)
	if err != nil {
		return nil, refusalOf(answer.StatusCode, nil)
	}
	return read, nil
}

func (l *httpLink) lost(err error) error {
	var dialed *net.OpError
	unsent := errors.As(err, &dialed) && dialed.Op == "dial"
	return &linkLost{why: fmt.Sprintf("no answer of %s: %v", l.address.host, err), unsent: unsent}
}

func (l *httpLink) close() {}

type sseLink struct {
	httpLink
	body   io.ReadCloser
	lines  *bufio.Reader
	cancel context.CancelFunc
	// Frames that arrived together with the hello.
	ahead []*frame
}

func (l *sseLink) open(ctx context.Context) (*hello, error) {
	// The stream lives as long as this context; until the hello has arrived, a timer ends it.
	ctx, l.cancel = context.WithCancel(ctx)
	timer := time.AfterFunc(l.openTimeout, l.cancel)
	defer timer.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address.url("http", "/v1/stream", l.query()), nil)
	if err != nil {
		return nil, err
	}
	request.Header = l.header()
	request.Header.Set("Accept", "text/event-stream")
	if l.ticket.Session != "" {
		request.Header.Set("Tavern-Session", l.ticket.Session)
		request.Header.Set("Last-Event-ID", strconv.FormatInt(l.ticket.Seq, 10))
	}
	answer, err := l.http.Do(request)
	if err != nil {
		return nil, l.lost(err)
	}
	l.body = answer.Body
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
		return nil, refusalOf(answer.StatusCode, body)
	}
	l.lines = bufio.NewReader(answer.Body)
	var frames []*frame
	for len(frames) == 0 {
		if frames, err = l.receive(ctx); err != nil {
			return nil, err
		}
	}
	read, err := readHello(frames[0])
	if err != nil {
		return nil, err
	}
	l.ahead = frames[1:]
	l.ticket.Session = read.Session
	if l.statuses {
		asked, err := members{"op": "hello", "session": read.Session, "status": true}.encode()
		if err != nil {
			return nil, err
		}
		if _, err := l.post(ctx, "/v1/command", asked, answerTimeout); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// receive reads one event; a comment, which is the sign of life of a silent stream, gives no frame.
func (l *sseLink) receive(context.Context) ([]*frame, error) {
	if len(l.ahead) > 0 {
		ahead := l.ahead
		l.ahead = nil
		return ahead, nil
	}
	var data []byte
	for {
		line, err := l.line(len(data))
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("data:")):
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...)
		case len(line) == 0 && len(data) > 0:
			read, err := parseFrame(data)
			if err != nil {
				return nil, err
			}
			return []*frame{read}, nil
		case len(line) > 0 && line[0] == ':':
			return nil, nil
		}
	}
}

func (l *sseLink) line(already int) ([]byte, error) {
	var line []byte
	for {
		piece, err := l.lines.ReadSlice('\n')
		line = append(line, piece...)
		if len(line)+already > maxBody {
			return nil, &linkLost{why: "an event exceeds the size limit"}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, &linkLost{why: fmt.Sprintf("the stream has ended: %v", err)}
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

func (l *sseLink) close() {
	if l.cancel != nil {
		l.cancel()
	}
	if l.body != nil {
		_ = l.body.Close()
	}
}

type pollLink struct {
	httpLink
}

func (l *pollLink) open(ctx context.Context) (*hello, error) {
	asked, err := l.helloMembers().encode()
	if err != nil {
		return nil, err
	}
	answer, err := l.post(ctx, "/v1/command", asked, l.openTimeout)
	if err != nil {
		return nil, err
	}
	read, err := readHello(answer)
	if err != nil {
		return nil, err
	}
	l.ticket.Session = read.Session
	return read, nil
}

func (l *pollLink) receive(ctx context.Context) ([]*frame, error) {
	// The cursor acknowledges everything before it.
	asked, err := members{"session": l.ticket.Session, "cursor": l.seq(), "timeout_ms": pollTime.Milliseconds()}.encode()
	if err != nil {
		return nil, err
	}
	answer, err := l.post(ctx, "/v1/poll", asked, pollTime+pollTime/10+answerTimeout)
	if err != nil {
		return nil, err
	}
	if len(answer.Error) > 0 {
		refused := errorFromWire(answer.Error)
		if refused.Code == "unauthenticated" {
			return nil, &linkLost{why: "the token has expired", code: closeTokenExpired}
		}
		return nil, &linkLost{why: refused.Error()}
	}
	var read struct {
		Events     []json.RawMessage `json:"events"`
		Superseded bool              `json:"superseded"`
		Reset      bool              `json:"reset"`
		Gap        json.RawMessage   `json:"gap"`
	}
	if json.Unmarshal(answer.raw, &read) != nil {
		return nil, &linkLost{why: "the server sent an invalid answer to a poll"}
	}
	if read.Superseded {
		return nil, &linkLost{why: "superseded", code: closeSuperseded}
	}
	if read.Reset {
		return nil, &linkLost{why: "the server has reset this session"}
	}
	var frames []*frame
	hasGap := false
	for _, one := range read.Events {
		event, err := parseFrame(one)
		if err != nil {
			return nil, err
		}
		hasGap = hasGap || event.Event == "gap"
		frames = append(frames, event)
	}
	if gap := string(read.Gap); gap != "" && gap != "null" && gap != "false" && !hasGap {
		frames = append([]*frame{{Event: "gap", raw: []byte(`{"event":"gap"}`)}}, frames...)
	}
	if len(answer.Party) > 0 {
		frames = append(frames, &frame{Party: answer.Party})
	}
	return frames, nil
}
