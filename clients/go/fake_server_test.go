package tavern

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// fakeServer answers hello and then does what the test says: for situations that a real server rarely produces.
type fakeServer struct {
	*httptest.Server
	mu sync.Mutex
	// What the server answers to an op, without id; "" for no answer. Others get an empty ok.
	replies map[string]string
	hello   string
	arrived chan *fakeConnection
}

type fakeConnection struct {
	socket   *websocket.Conn
	hello    map[string]any
	commands chan map[string]any
}

const welcome = `"ok":{"session":"secret","client":"c1","user":"ann","node":"n1","epoch":1,"seq":0,"party":null,"heartbeat_ms":`

func newFakeServer(t *testing.T, heartbeatMS int) *fakeServer {
	s := &fakeServer{replies: map[string]string{}, arrived: make(chan *fakeConnection, 64)}
	s.hello = welcome + fmt.Sprint(heartbeatMS) + `,"resumed":false}`
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.CloseClientConnections)
	return s
}

func (s *fakeServer) serve(out http.ResponseWriter, request *http.Request) {
	socket, err := websocket.Accept(out, request, nil)
	if err != nil {
		return
	}
	defer socket.CloseNow()
	ctx := request.Context()
	one := &fakeConnection{socket: socket, commands: make(chan map[string]any, 1024)}
	one.hello, err = one.read(ctx)
	if err != nil {
		return
	}
	one.send(`{"id":"hello",` + s.hello + `}`)
	s.arrived <- one
	for {
		command, err := one.read(ctx)
		if err != nil {
			return
		}
		s.mu.Lock()
		reply, scripted := s.replies[command["op"].(string)]
		s.mu.Unlock()
		if !scripted {
			reply = `"ok":{}`
		}
		one.commands <- command
		if reply != "" {
			one.send(fmt.Sprintf(`{"id":%v,%s}`, command["id"], reply))
		}
	}
}

func (s *fakeServer) reply(op, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[op] = text
}

func (c *fakeConnection) read(ctx context.Context) (map[string]any, error) {
	_, text, err := c.socket.Read(ctx)
	if err != nil {
		return nil, err
	}
	var read map[string]any
	return read, json.Unmarshal(text, &read)
}

func (c *fakeConnection) send(text string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.socket.Write(ctx, websocket.MessageText, []byte(text))
}

func (c *fakeConnection) message(seq int, data string) {
	c.send(fmt.Sprintf(`{"seq":%d,"event":"message","channel":"game#1","data":%s,"from":{"user":"bob","client":"b1"}}`, seq, data))
}

// next waits for a value with a generous limit.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func connected(t *testing.T, s *fakeServer, options Options) (*Client, *fakeConnection) {
	t.Helper()
	c, err := Connect(short(t), s.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c, next(t, s.arrived)
}
