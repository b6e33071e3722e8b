package tavern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// The limit within which every call must end when a part of the client fails.
const failLimit = 2 * time.Second

// mustEndWith fails unless the error comes in time, with this code.
func mustEndWith(t *testing.T, what string, code string, from <-chan error) {
	t.Helper()
	select {
	case err := <-from:
		if CodeOf(err) != code {
			t.Errorf("%s: the error is %v, not %s", what, err, code)
		}
	case <-time.After(failLimit):
		t.Errorf("%s hangs", what)
	}
}

func TestWhenAPartOfTheClientFailsEveryCallEnds(t *testing.T) {
	token := "x.eyJleHAiOjk5OTk5OTk5OTl9.x"
	for _, task := range []string{"read", "write", "heartbeat", "renew", "prefer"} {
		t.Run(task, func(t *testing.T) {
			server := newFakeServer(t, 15_000)
			server.reply("who", "")
			broken := make(chan struct{})
			c, err := New(server.URL, Options{GetToken: func(context.Context) (string, error) { return token, nil }})
			if err != nil {
				t.Fatal(err)
			}
			c.session.faultInjected = func(started string) {
				if started == task {
					<-broken
					panic("injected")
				}
			}
			closed := make(chan error, 1)
			c.OnClosed(func(why error) { closed <- why })
			if err := c.Connect(short(t)); err != nil {
				t.Fatal(err)
			}
			pending := make(chan error, 1)
			go func() {
				_, err := c.Channel("game#1").Who(context.Background(), WhoQuery{})
				pending <- err
			}()
			if task != "write" {
				next(t, next(t, server.arrived).commands)
			}
			close(broken)
			mustEndWith(t, "the pending call", CodeFailed, pending)
			mustEndWith(t, "OnClosed", CodeFailed, closed)
			later := make(chan error, 1)
			go func() { later <- c.Channel("game#1").Join(context.Background(), nil) }()
			mustEndWith(t, "a later call", CodeFailed, later)
			if c.State() != StateClosed || !errors.Is(c.Err(), ErrFailed) {
				t.Errorf("the state is %s, %v", c.State(), c.Err())
			}
		})
	}
}

func TestWhenConnectingFailsUnexpectedlyConnectEnds(t *testing.T) {
	for _, task := range []string{"run", "GetToken"} {
		server := newFakeServer(t, 15_000)
		c, err := New(server.URL, Options{GetToken: func(context.Context) (string, error) { return "token", nil }})
		if err != nil {
			t.Fatal(err)
		}
		c.session.faultInjected = func(started string) {
			if started == task {
				panic("injected")
			}
		}
		opened := make(chan error, 1)
		go func() { opened <- c.Connect(context.Background()) }()
		mustEndWith(t, task, CodeFailed, opened)
	}
}

func TestAPanicWhileAReplyIsReadEndsEveryCall(t *testing.T) {
	server := newFakeServer(t, 15_000)
	c, _ := connected(t, server, Options{User: "ann"})
	ended := make(chan error, 1)
	go func() {
		_, err := c.session.ask(context.Background(), "join", nil, func(json.RawMessage) error { panic("injected") })
		ended <- err
	}()
	mustEndWith(t, "the call", CodeFailed, ended)
}

func TestAPanicInAFunctionOfTheAppClosesTheClient(t *testing.T) {
	server := newFakeServer(t, 15_000)
	server.reply("who", "")
	c, connection := connected(t, server, Options{User: "ann"})
	channel := c.Channel("game#1")
	if err := channel.Subscribe(short(t)); err != nil {
		t.Fatal(err)
	}
	channel.OnMessage(func(Message) { panic("a bug of the app") })
	pending := make(chan error, 1)
	go func() {
		_, err := channel.Who(context.Background(), WhoQuery{})
		pending <- err
	}()
	connection.message(1, "1")
	mustEndWith(t, "the pending call", CodeFailed, pending)
}

func TestATokenFunctionThatNeverAnswersDoesNotHang(t *testing.T) {
	server := newFakeServer(t, 15_000)
	forever := make(chan struct{})
	defer close(forever)
	c, err := New(server.URL, Options{GetToken: func(context.Context) (string, error) {
		<-forever
		return "", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- c.Connect(ctx) }()
	mustEndWith(t, "Connect", CodeTimeout, opened)
}

func TestACallEndsWithItsContextAndTellsWhetherItWasExecuted(t *testing.T) {
	server := newFakeServer(t, 15_000)
	server.reply("who", "")
	server.reply("publish", "")
	c, _ := connected(t, server, Options{User: "ann"})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Channel("game#1").Who(ctx, WhoQuery{})
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Channel("game#1").Publish(ctx, 1); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("publish: %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Channel("game#1").Join(cancelled, nil); CodeOf(err) != CodeCancelled {
		t.Errorf("join: %v", err)
	}
}

func TestAHostileServerDoesNoHarm(t *testing.T) {
	server := newFakeServer(t, 15_000)
	c, connection := connected(t, server, Options{User: "ann"})
	unlock := c.lock()
	c.session.random = func() float64 { return 0 }
	unlock()
	for _, text := range []string{
		`[]`, `nonsense`, `{"seq":"x"}`, `{"event":7}`, `null`, ``,
	} {
		lost := make(chan string, 8)
		remove := c.OnReconnecting(func(why string) { lost <- why })
		connection.send(text)
		next(t, lost)
		remove()
		connection = next(t, server.arrived)
	}
	for _, text := range []string{
		`{}`, `{"id":99,"ok":{}}`, `{"id":"x","ok":7}`, `{"event":"message"}`, `{"event":"presence","channel":"x","version":{}}`,
		`{"event":"party","party_id":"x"}`, `{"event":"gap","from":"x"}`, `{"event":"status","status":1}`, `{"event":"inbox","message_id":[]}`,
		`{"event":"revoked","verb":3}`, `{"event":"something_new","deep":[[[[]]]]}`, `{"party":5}`,
	} {
		connection.send(text)
	}
	if err := c.Channel("game#1").Join(short(t), nil); err != nil {
		t.Error(err)
	}
}

func TestDuplicateEventsAreDropped(t *testing.T) {
	server := newFakeServer(t, 15_000)
	c, connection := connected(t, server, Options{User: "ann"})
	channel := c.Channel("game#1")
	got := make(chan string, 64)
	channel.OnMessage(func(message Message) { got <- message.Text() })
	if err := channel.Subscribe(short(t)); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int{1, 2, 2, 1, 3} {
		connection.message(seq, fmt.Sprint(seq))
	}
	for _, wanted := range []string{"1", "2", "3"} {
		same(t, "message", next(t, got), wanted)
	}
}

func TestOwnMessagesAreLeftOutOnRequest(t *testing.T) {
	server := newFakeServer(t, 15_000)
	c, connection := connected(t, server, Options{User: "ann", NoEcho: true})
	got := make(chan string, 8)
	channel, pattern := c.Channel("game#1"), c.Pattern("game#*")
	channel.OnMessage(func(message Message) { got <- "channel " + message.Text() })
	pattern.OnMessage(func(message Message) { got <- "pattern " + message.Text() })
	for _, err := range []error{channel.Subscribe(short(t)), pattern.Subscribe(short(t))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	connection.send(`{"seq":1,"event":"message","channel":"game#1","data":1,"from":{"user":"ann","client":"c1"}}`)
	connection.message(2, "2")
	same(t, "first", next(t, got), "channel 2")
	same(t, "second", next(t, got), "pattern 2")
}

func TestASlowAppLosesEventsAndIsTold(t *testing.T) {
	c := running(t, Options{})
	channel := c.Channel("game#1")
	channel.subscribed = true
	goOn, received, gaps := make(chan struct{}), 0, make(chan Gap, 1)
	channel.OnMessage(func(Message) {
		<-goOn
		received++
	})
	c.OnGap(func(gap Gap) { gaps <- gap })
	for number := 0; number < waitingCalls+100; number++ {
		c.takeMessage(Message{Channel: "game#1", Data: []byte("1")})
	}
	close(goOn)
	gap := next(t, gaps)
	if gap.Overflow == 0 || gap.Overflow+received != waitingCalls+100 {
		t.Errorf("%d were dropped and %d received", gap.Overflow, received)
	}
}

func TestAUserWhoComesOrGoesIsOneChange(t *testing.T) {
	c := running(t, Options{})
	presence := c.Channel("game#1").presence
	presence.load(Members{Version: 1, Users: []Member{}})
	changes := make(chan int, 64)
	presence.OnChange(func() { changes <- len(presence.Users()) })
	take := func(text string) {
		defer c.lock()()
		presence.takeJSON([]byte(text))
	}
	take(`{"event":"user_online","version":2,"user":"bob"}`)
	take(`{"event":"client_online","version":3,"user":"bob","client":"b1","state":1}`)
	same(t, "users", next(t, changes), 1)
	take(`{"event":"client_offline","version":4,"user":"bob","client":"b1","explicit":true}`)
	take(`{"event":"user_offline","version":5,"user":"bob"}`)
	same(t, "users", next(t, changes), 0)
	// Without the second event the change is told anyway.
	take(`{"event":"user_online","version":6,"user":"bob"}`)
	same(t, "users", next(t, changes), 1)
	same(t, "changes", len(changes), 0)
}

func TestWhatIsClosedConnectsAgainAndRestores(t *testing.T) {
	server := newFakeServer(t, 15_000)
	c, _ := connected(t, server, Options{User: "ann"})
	if err := c.Channel("game#1").Subscribe(short(t)); err != nil {
		t.Fatal(err)
	}
	c.Close(short(t))
	if err := c.Channel("game#1").Join(short(t), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("join: %v", err)
	}
	if err := c.Connect(short(t)); err != nil {
		t.Fatal(err)
	}
	again := next(t, server.arrived)
	same(t, "session", again.hello["session"], nil)
	same(t, "op", next(t, again.commands)["op"], "subscribe")
}

func TestOptionsAreChecked(t *testing.T) {
	for url, options := range map[string]Options{
		"ftp://example.org":               {},
		"http://":                         {},
		"http://user:secret@example.org":  {},
		"http://example.org/?token=x":     {},
		"http://example.org/two":          {Token: "a", User: "b"},
		"http://example.org/no-transport": {Transports: []Transport{"carrier pigeon"}},
	} {
		if _, err := New(url, options); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
}

func TestAServerThatHangsIsLeftForTheNextOne(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	server := newFakeServer(t, 15_000)
	options := Options{User: "ann", Transports: []Transport{WebSocket}, MoreURLs: []string{server.URL}, ConnectTimeout: 50 * time.Millisecond}
	if _, err := Connect(short(t), "http://"+hanging.Addr().String(), options); err != nil {
		t.Fatal(err)
	}
}
