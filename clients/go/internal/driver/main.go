// The Go client as an actor of the shared scenarios (clients/scenarios): JSON lines in, JSON lines out. Contains no checks.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	tavern "tavern.example/client"
)

// How long a command may take to be sent before the next line is read: this keeps the order.
const start = 20 * time.Millisecond

type object = map[string]any

type driver struct {
	client  *tavern.Client
	watched map[string]bool
	mu      sync.Mutex
	asked   map[int]chan command
}

var output sync.Mutex

func write(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		text, _ = json.Marshal(object{"event": object{"type": "driver", "error": err.Error()}})
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

func emit(kind string, members object) {
	event := object{"type": kind}
	for name, value := range members {
		event[name] = value
	}
	write(object{"event": event})
}

// command is a line of the runner.
type command struct {
	ID     int    `json:"id"`
	Do     string `json:"do"`
	Answer int    `json:"answer"`
	Token  string `json:"token"`
	Error  string `json:"error"`

	URL        string             `json:"url"`
	User       string             `json:"user"`
	Tokens     bool               `json:"tokens"`
	Transports []tavern.Transport `json:"transports"`
	Resume     *tavern.Ticket     `json:"resume"`
	Options    struct {
		Echo             *bool `json:"echo"`
		CommandTimeoutMS int   `json:"command_timeout_ms"`
		ConnectTimeoutMS int   `json:"connect_timeout_ms"`
	} `json:"options"`

	Channel   string           `json:"channel"`
	Pattern   string           `json:"pattern"`
	Presence  bool             `json:"presence"`
	Last      *int             `json:"last"`
	Since     *tavern.Position `json:"since"`
	Data      json.RawMessage  `json:"data"`
	State     json.RawMessage  `json:"state"`
	MessageID string           `json:"message_id"`
	Retain    bool             `json:"retain"`
	After     *int64           `json:"after"`
	Before    *int64           `json:"before"`
	Limit     int              `json:"limit"`
	From      int              `json:"from"`
	Count     int              `json:"count"`
	Users     []string         `json:"users"`
	Value     string           `json:"value"`
	Cmd       string           `json:"cmd"`

	all object
}

func main() {
	d := &driver{watched: map[string]bool{}, asked: map[int]chan command{}}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			// The session is not ended.
			os.Exit(0)
		}
		var given command
		if err := json.Unmarshal(line, &given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if given.Answer != 0 {
			d.mu.Lock()
			d.asked[given.Answer] <- given
			d.mu.Unlock()
			continue
		}
		_ = json.Unmarshal(line, &given.all)
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.answer(given)
		}()
		select {
		case <-done:
		case <-time.After(start):
		}
	}
}

func (d *driver) answer(given command) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	ok, err := d.do(ctx, given)
	if err != nil {
		code := tavern.CodeOf(err)
		if code == "" {
			code = "driver"
		}
		write(object{"id": given.ID, "error": object{"code": code, "message": err.Error()}})
		return
	}
	if ok == nil {
		ok = object{}
	}
	write(object{"id": given.ID, "ok": ok})
}

func (d *driver) token(ctx context.Context) (string, error) {
	d.mu.Lock()
	number := len(d.asked) + 1
	answer := make(chan command, 1)
	d.asked[number] = answer
	d.mu.Unlock()
	write(object{"ask": "token", "n": number})
	select {
	case given := <-answer:
		if given.Error != "" {
			return "", errors.New(given.Error)
		}
		return given.Token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (d *driver) begin(given command) error {
	options := tavern.Options{User: given.User, Transports: given.Transports, Resume: given.Resume}
	options.NoEcho = given.Options.Echo != nil && !*given.Options.Echo
	options.CommandTimeout = time.Duration(given.Options.CommandTimeoutMS) * time.Millisecond
	options.ConnectTimeout = time.Duration(given.Options.ConnectTimeoutMS) * time.Millisecond
	if given.Tokens {
		options.GetToken = d.token
	}
	if os.Getenv("TAVERN_DEBUG") != "" {
		options.Debug = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	client, err := tavern.New(given.URL, options)
	if err != nil {
		return err
	}
	client.OnOpen(func(opened tavern.Opened) {
		switch {
		case opened.Resumed:
			emit("resumed", nil)
		case opened.Reset:
			emit("reset", nil)
		default:
			emit("open", nil)
		}
	})
	client.OnReconnecting(func(string) { emit("reconnecting", nil) })
	client.OnClosing(func(time.Duration) { emit("closing", nil) })
	client.OnClosed(func(why error) {
		if errors.Is(why, tavern.ErrSuperseded) {
			emit("superseded", nil)
		}
		if why == nil {
			emit("closed", nil)
			return
		}
		emit("closed", object{"code": tavern.CodeOf(why)})
	})
	client.OnError(func(why error) { emit("error", object{"code": tavern.CodeOf(why)}) })
	client.OnGap(func(gap tavern.Gap) {
		if gap.Channel != "" {
			emit("gap", object{"channel": gap.Channel})
			return
		}
		emit("gap", object{"from": gap.From, "to": gap.To})
	})
	client.OnRevoked(func(revoked tavern.Revoked) {
		members := object{"verb": revoked.Verb}
		if revoked.Channel != "" {
			members["channel"] = revoked.Channel
		}
		if revoked.Pattern != "" {
			members["pattern"] = revoked.Pattern
		}
		emit("revoked", members)
	})
	client.OnEvent(func(event tavern.ServerEvent) {
		if event.Name != "status" && event.Name != "inbox" && event.Name != "party" {
			return
		}
		var members object
		_ = json.Unmarshal(event.JSON, &members)
		delete(members, "event")
		delete(members, "seq")
		emit(event.Name, members)
	})
	client.Party().OnSay(func(message tavern.Message) {
		emit("party", object{"cmd": "say", "data": message.Data, "uid": message.User, "from": object{"user": message.User}})
	})
	d.client = client
	return nil
}

func (d *driver) do(ctx context.Context, given command) (any, error) {
	if given.Do == "connect" {
		if given.URL != "" {
			if err := d.begin(given); err != nil {
				return nil, err
			}
		}
		return nil, d.client.Connect(ctx)
	}
	if d.client == nil {
		return nil, errors.New("not connected")
	}
	me, party := d.client.Me(), d.client.Party()
	switch given.Do {
	case "suspend":
		d.client.Suspend()
		return nil, nil
	case "close":
		d.client.Close(ctx)
		return nil, nil
	case "ticket":
		return d.client.Ticket(), nil
	case "state":
		return object{
			"state": d.client.State(), "transport": d.client.Transport(), "user": me.User(), "client": me.Client(), "node": d.client.Node(),
		}, nil
	case "status":
		statuses, err := me.Status(ctx, given.Users...)
		return object{"statuses": statuses}, err
	case "follow":
		return nil, me.Follow(ctx, given.User)
	case "unfollow":
		return nil, me.Unfollow(ctx, given.User)
	case "following":
		users, err := me.Following(ctx)
		return object{"users": users}, err
	case "followers":
		users, err := me.Followers(ctx)
		return object{"users": users}, err
	case "visibility":
		return nil, me.SetVisibility(ctx, tavern.Visibility(given.Value))
	case "party":
		members := given.all
		for _, name := range []string{"id", "do", "cmd"} {
			delete(members, name)
		}
		return party.Command(ctx, given.Cmd, members)
	case "party_current":
		return object{"party": party.Current()}, nil
	}
	if given.Pattern != "" {
		return nil, inPattern(ctx, d.client.Pattern(given.Pattern), given.Do)
	}
	return d.inChannel(ctx, d.client.Channel(given.Channel), given)
}

func inPattern(ctx context.Context, pattern *tavern.Pattern, do string) error {
	if do == "unsubscribe" {
		return pattern.Unsubscribe(ctx)
	}
	pattern.OnMessage(emitMessage)
	return pattern.Subscribe(ctx)
}

func emitMessage(message tavern.Message) {
	from := object{"user": message.User, "client": message.Client}
	emit("message", object{"channel": message.Channel, "data": message.Data, "from": from})
}

func (d *driver) inChannel(ctx context.Context, channel *tavern.Channel, given command) (any, error) {
	switch given.Do {
	case "subscribe":
		return nil, d.subscribe(ctx, channel, given)
	case "unsubscribe":
		return nil, channel.Unsubscribe(ctx)
	case "publish":
		published, err := channel.PublishWith(ctx, given.Data, tavern.PublishOptions{ID: given.MessageID, Retain: given.Retain})
		ok := object{"receivers": published.Receivers, "duplicate": published.Duplicate}
		if place := published.Position; place != nil {
			ok["epoch"], ok["offset"] = place.Epoch, place.Offset
		}
		return ok, err
	case "history":
		return channel.History(ctx, tavern.HistoryQuery{After: given.After, Before: given.Before, Limit: given.Limit})
	case "position":
		if position := channel.Position(); position != nil {
			return position, nil
		}
		return nil, nil
	case "burst":
		for number := given.From; number < given.From+given.Count; number++ {
			if _, err := channel.Publish(ctx, number); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "join":
		return nil, channel.Join(ctx, given.State)
	case "update":
		return nil, channel.Update(ctx, given.State)
	case "leave":
		return nil, channel.Leave(ctx)
	case "who":
		return channel.Who(ctx, tavern.WhoQuery{})
	case "presence":
		return d.present(ctx, channel)
	}
	return nil, fmt.Errorf("unknown command %q", given.Do)
}

func (d *driver) subscribe(ctx context.Context, channel *tavern.Channel, given command) error {
	name := channel.Name()
	if !d.watched[name] {
		d.watched[name] = true
		channel.OnMessage(emitMessage)
		channel.OnRecovered(func(complete bool) { emit("recovered", object{"channel": name, "recovered": complete}) })
	}
	switch {
	case given.Presence:
		presence, err := channel.Presence(ctx)
		if err != nil {
			return err
		}
		presence.OnChange(func() { emit("presence", object{"channel": name}) })
		return nil
	case given.Last != nil:
		return channel.SubscribeLast(ctx, *given.Last)
	case given.Since != nil:
		return channel.SubscribeSince(ctx, *given.Since)
	}
	return channel.Subscribe(ctx)
}

func (d *driver) present(ctx context.Context, channel *tavern.Channel) (any, error) {
	presence, err := channel.Presence(ctx)
	if err != nil {
		return nil, err
	}
	users := object{}
	for id, user := range presence.Users() {
		clients := object{}
		for client, shown := range user.Clients {
			clients[client] = shown.State
		}
		users[id] = object{"name": user.Name, "clients": clients}
	}
	return object{"users": users, "count": presence.Count(), "mode": presence.Mode()}, nil
}
