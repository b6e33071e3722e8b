package tavern

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Channel is one channel. Subscribing, being present (Join) and watching who is present (Presence) are independent.
type Channel struct {
	client   *Client
	name     string
	messages listeners[Message]
	gaps     listeners[Gap]
	recovers listeners[bool]
	presence *Presence
	// What a new session restores.
	subscribed, watching, joined bool
	state                        any
	// Calls of Subscribe with a position: over HTTP, messages may arrive before the reply.
	subscribing int
	// The last message of the history that this client got.
	position *Position
	// Missing messages were asked for; a gap was announced, and any later message may follow.
	healing, jumping bool
}

func newChannel(c *Client, name string) *Channel {
	made := &Channel{client: c, name: name}
	made.presence = &Presence{channel: made, mode: "full", users: map[string]*PresentUser{}, anonymous: map[string]*PresentClient{}}
	return made
}

// Name is the name of the channel.
func (ch *Channel) Name() string { return ch.name }

// OnMessage is called with each message from now on. It does not subscribe.
func (ch *Channel) OnMessage(call func(Message)) (remove func()) {
	return on(ch.client, &ch.messages, call)
}

// OnGap is called when messages of this channel were dropped.
func (ch *Channel) OnGap(call func(Gap)) (remove func()) { return on(ch.client, &ch.gaps, call) }

// OnRecovered is called when the client had asked for the messages it missed: with true if it got all of them.
func (ch *Channel) OnRecovered(call func(complete bool)) (remove func()) {
	return on(ch.client, &ch.recovers, call)
}

// Subscribe subscribes; messages arrive from now on.
func (ch *Channel) Subscribe(ctx context.Context) error {
	unlock := ch.client.lock()
	if ch.watching {
		// Watching presence includes the subscription.
		ch.subscribed = true
		unlock()
		return nil
	}
	unlock()
	return ch.subscribe(ctx, members{"channel": ch.name})
}

// SubscribeLast subscribes; the last messages of the history come first.
func (ch *Channel) SubscribeLast(ctx context.Context, last int) error {
	return ch.subscribeFrom(ctx, members{"channel": ch.name, "last": last})
}

// SubscribeSince subscribes; the messages after this position come first.
func (ch *Channel) SubscribeSince(ctx context.Context, since Position) error {
	return ch.subscribeFrom(ctx, members{"channel": ch.name, "since": since})
}

func (ch *Channel) subscribeFrom(ctx context.Context, given members) error {
	unlock := ch.client.lock()
	known := ch.position
	ch.position = nil
	ch.subscribing++
	unlock()
	err := ch.subscribe(ctx, given)
	defer ch.client.lock()()
	ch.subscribing--
	if err != nil && ch.position == nil {
		ch.position = known
	}
	return err
}

func (ch *Channel) subscribe(ctx context.Context, given members) error {
	_, err := ch.client.session.ask(ctx, "subscribe", given, ch.granted)
	return err
}

// granted is called with the reply to a subscription.
func (ch *Channel) granted(ok json.RawMessage) error {
	var read struct {
		Channel   *string `json:"channel"`
		Recovered *bool   `json:"recovered"`
	}
	if err := json.Unmarshal(ok, &read); err != nil {
		return err
	}
	ch.subscribed = true
	if ch.position == nil || (read.Recovered != nil && !*read.Recovered) {
		// Over HTTP messages may arrive before this reply; then the position is theirs.
		ch.position = readPosition(ok)
	}
	if read.Channel != nil && *read.Channel != ch.name {
		ch.client.aliases[*read.Channel] = ch
	}
	if read.Recovered != nil {
		ch.recovers.emit(ch.client.dispatcher, false, *read.Recovered)
		if !*read.Recovered {
			ch.gaps.emit(ch.client.dispatcher, false, Gap{Channel: ch.name})
		}
	}
	return nil
}

// Unsubscribe ends the subscription and watching; a presence in the channel stays.
func (ch *Channel) Unsubscribe(ctx context.Context) error {
	_, err := ch.client.session.ask(ctx, "unsubscribe", members{"channel": ch.name}, func(json.RawMessage) error {
		ch.subscribed, ch.watching, ch.position, ch.presence.synced = false, false, nil, false
		return nil
	})
	return err
}

// Published is the answer to a publish.
type Published struct {
	// How many subscriptions on the server received it.
	Receivers int `json:"receivers"`
	// Its place, if the channel keeps history.
	Position *Position `json:"-"`
	// This id was published before: the message is not delivered again.
	Duplicate bool `json:"duplicate"`
}

// PublishOptions are those of PublishWith.
type PublishOptions struct {
	// On a channel with history a message with an id is published once, even if it is sent again.
	ID string
	// Retain keeps the message as the last value of the channel, for those who subscribe later.
	Retain bool
}

// Publish publishes. It fails with ErrUnknownOutcome when the connection is lost before the reply.
func (ch *Channel) Publish(ctx context.Context, data any) (Published, error) {
	return ch.PublishWith(ctx, data, PublishOptions{})
}

// PublishWith publishes with options.
func (ch *Channel) PublishWith(ctx context.Context, data any, options PublishOptions) (Published, error) {
	encoded, err := encode(data)
	if err != nil {
		return Published{}, err
	}
	given := members{"channel": ch.name, "data": encoded}
	if options.ID != "" {
		given["message_id"] = options.ID
	}
	if options.Retain {
		given["retain"] = true
	}
	ok, err := ch.client.session.ask(ctx, "publish", given, nil)
	if err != nil {
		return Published{}, err
	}
	published := Published{Position: readPosition(ok)}
	err = decode(ok, &published)
	return published, err
}

// HistoryQuery chooses a page of a history: the last messages, those after or those before an offset.
type HistoryQuery struct {
	After, Before *int64
	Limit         int
}

// History is a page of the history of a channel, the oldest message first.
type History struct {
	Position
	Messages []PastMessage `json:"messages"`
	// There are more messages on this side.
	More bool `json:"more"`
}

// PastMessage is a message of the history.
type PastMessage struct {
	Offset    int64           `json:"offset"`
	At        int64           `json:"at"`
	MessageID string          `json:"message_id,omitempty"`
	Data      json.RawMessage `json:"data"`
	From      *PastSender     `json:"from,omitempty"`
}

// PastSender is who published a message of the history.
type PastSender struct {
	User   *string `json:"user"`
	Client *string `json:"client"`
}

// History reads a page of the history.
func (ch *Channel) History(ctx context.Context, query HistoryQuery) (History, error) {
	given := members{"channel": ch.name}
	if query.After != nil {
		given["after"] = *query.After
	}
	if query.Before != nil {
		given["before"] = *query.Before
	}
	if query.Limit > 0 {
		given["limit"] = query.Limit
	}
	ok, err := ch.client.session.ask(ctx, "history", given, nil)
	if err != nil {
		return History{}, err
	}
	var page History
	err = decode(ok, &page)
	return page, err
}

// Position is the place of the last message that arrived; nil without history.
func (ch *Channel) Position() *Position {
	defer ch.client.lock()()
	if ch.position == nil {
		return nil
	}
	position := *ch.position
	return &position
}

// Join makes this client present, with a small state: any JSON, or nil.
func (ch *Channel) Join(ctx context.Context, state any) error {
	encoded, err := encode(state)
	if err != nil {
		return err
	}
	_, err = ch.client.session.ask(ctx, "join", members{"channel": ch.name, "state": encoded}, func(json.RawMessage) error {
		ch.joined, ch.state = true, encoded
		return nil
	})
	return err
}

// Update replaces the state.
func (ch *Channel) Update(ctx context.Context, state any) error {
	encoded, err := encode(state)
	if err != nil {
		return err
	}
	_, err = ch.client.session.ask(ctx, "update", members{"channel": ch.name, "state": encoded}, func(json.RawMessage) error {
		ch.state = encoded
		return nil
	})
	return err
}

// Leave ends the presence of this client.
func (ch *Channel) Leave(ctx context.Context) error {
	_, err := ch.client.session.ask(ctx, "leave", members{"channel": ch.name}, func(json.RawMessage) error {
		ch.joined, ch.state = false, nil
		return nil
	})
	return err
}

// WhoQuery chooses a page of Who.
type WhoQuery struct {
	CountsOnly bool
	After      string
	Limit      int
}

// Who asks the server who is present: one page.
func (ch *Channel) Who(ctx context.Context, query WhoQuery) (Members, error) {
	given := members{"channel": ch.name}
	if query.CountsOnly {
		given["counts_only"] = true
	}
	if query.After != "" {
		given["after"] = query.After
	}
	if query.Limit > 0 {
		given["limit"] = query.Limit
	}
	ok, err := ch.client.session.ask(ctx, "who", given, nil)
	if err != nil {
		return Members{}, err
	}
	var page Members
	err = decode(ok, &page)
	return page, err
}

// Presence is the live map of who is present; the first call starts watching, which includes a subscription.
func (ch *Channel) Presence(ctx context.Context) (*Presence, error) {
	unlock := ch.client.lock()
	watching := ch.watching
	unlock()
	if watching {
		return ch.presence, nil
	}
	if _, err := ch.client.session.ask(ctx, "subscribe", members{"channel": ch.name, "presence": true}, ch.watched); err != nil {
		return nil, err
	}
	return ch.presence, nil
}

func (ch *Channel) watched(ok json.RawMessage) error {
	var read struct {
		Members *Members `json:"members"`
	}
	if err := json.Unmarshal(ok, &read); err != nil {
		return err
	}
	if err := ch.granted(ok); err != nil {
		return err
	}
	ch.watching = true
	if read.Members == nil {
		return errors.New("it has no members")
	}
	ch.presence.load(*read.Members)
	return nil
}

// ---- called under the lock

// send sends a command whose refusal is the app's to hear, but nobody waits for.
func (ch *Channel) send(op string, given members, onOK func(json.RawMessage) error, onEnd func()) {
	encoded, err := given.encode()
	if err != nil {
		return
	}
	sent, err := ch.client.session.begin(op, encoded, true, onOK)
	if err != nil {
		onEnd()
		return
	}
	sent.onEnd = func(refused *Error) {
		onEnd()
		if refused != nil && ch.client.session.ended == nil {
			ch.client.onError(refused)
		}
	}
}

// reload asks for a snapshot: the map has missed changes.
func (ch *Channel) reload() {
	if ch.watching {
		ch.send("subscribe", members{"channel": ch.name, "presence": true}, ch.watched, func() {})
	}
}

// take delivers a message. One that this client published itself only moves the position, if the app does not want it.
func (ch *Channel) take(message Message, silent bool) {
	if place := message.Position; place != nil {
		known := ch.position
		if known != nil && !place.after(*known) {
			return
		}
		if known != nil && place.Epoch == known.Epoch && place.Offset > known.Offset+1 && !ch.jumping {
			ch.heal(*known)
			return
		}
		ch.position, ch.jumping = place, false
	}
	if !silent {
		ch.messages.emit(ch.client.dispatcher, true, message)
	}
}

// heal asks for missing messages; those that arrive meanwhile come again.
func (ch *Channel) heal(known Position) {
	if ch.healing {
		return
	}
	ch.healing = true
	ch.send("subscribe", members{"channel": ch.name, "since": known}, ch.granted, func() { ch.healing = false })
}

func (ch *Channel) takeGap(gap Gap) {
	ch.jumping = ch.jumping || gap.Channel != ""
	ch.gaps.emit(ch.client.dispatcher, false, gap)
	ch.presence.lose()
}

func (ch *Channel) takeRevoked(verb string) {
	switch verb {
	case "join":
		ch.joined, ch.state = false, nil
	case "subscribe":
		ch.subscribed, ch.watching, ch.presence.synced = false, false, false
	default:
		ch.watching, ch.presence.synced = false, false
	}
}

// restore sends the commands that restore this channel in a new session.
func (ch *Channel) restore() {
	asked := members{"channel": ch.name}
	if ch.position != nil {
		asked["since"] = *ch.position
	}
	// Any message may follow until the reply.
	ch.position = nil
	session := ch.client.session
	granted := ch.granted
	if ch.watching {
		asked["presence"] = true
		granted, ch.presence.synced = ch.watched, false
	}
	if ch.subscribed || ch.watching {
		if encoded, err := asked.encode(); err == nil {
			_, _ = session.begin("subscribe", encoded, true, granted)
		}
	}
	if ch.joined {
		if encoded, err := (members{"channel": ch.name, "state": ch.state}).encode(); err == nil {
			_, _ = session.begin("join", encoded, true, nil)
		}
	}
}

// Pattern is all channels that match a Redis glob.
type Pattern struct {
	client     *Client
	glob       string
	messages   listeners[Message]
	gaps       listeners[Gap]
	subscribed bool
}

// OnMessage is called with each message from now on. It does not subscribe.
func (p *Pattern) OnMessage(call func(Message)) (remove func()) {
	return on(p.client, &p.messages, call)
}

// OnGap is called when messages of these channels were dropped.
func (p *Pattern) OnGap(call func(Gap)) (remove func()) { return on(p.client, &p.gaps, call) }

// Subscribe subscribes; messages arrive from now on.
func (p *Pattern) Subscribe(ctx context.Context) error {
	_, err := p.client.session.ask(ctx, "subscribe", members{"pattern": p.glob}, func(json.RawMessage) error {
		p.subscribed = true
		return nil
	})
	return err
}

// Unsubscribe ends the subscription.
func (p *Pattern) Unsubscribe(ctx context.Context) error {
	_, err := p.client.session.ask(ctx, "unsubscribe", members{"pattern": p.glob}, func(json.RawMessage) error {
		p.subscribed = false
		return nil
	})
	return err
}

func (p *Pattern) restore() {
	if !p.subscribed {
		return
	}
	if encoded, err := (members{"pattern": p.glob}).encode(); err == nil {
		_, _ = p.client.session.begin("subscribe", encoded, true, nil)
	}
}

// timeOf is the time of milliseconds since the epoch; zero without one.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
