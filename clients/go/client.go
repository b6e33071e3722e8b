package tavern

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Client is one user's connection. All methods may be called from any goroutine.
type Client struct {
	session    *session
	dispatcher *dispatcher
	me         *Me
	party      *Party
	// Guarded by the lock of the session, as is everything in channels, patterns, the party and the user.
	channels map[string]*Channel
	// Channels by the name that the server chose for them.
	aliases      map[string]*Channel
	patterns     map[string]*Pattern
	lastMessage  int64
	opens        listeners[Opened]
	reconnecting listeners[string]
	closings     listeners[time.Duration]
	closes       listeners[error]
	gaps         listeners[Gap]
	revocations  listeners[Revoked]
	errors       listeners[error]
	events       listeners[ServerEvent]
}

// Opened says that the session is open.
type Opened struct {
	// The client is back, and nothing was lost.
	Resumed bool
	// The client is back with a new session. Subscriptions, presence and presence maps are restored; messages in between may be lost.
	Reset bool
	// What could not be restored.
	Failed []error
}

// New makes a client of the server at url (http, https, ws or wss). It connects when Connect is called.
func New(url string, options Options) (*Client, error) {
	checked, err := options.check(url)
	if err != nil {
		return nil, err
	}
	c := &Client{
		session:  newSession(checked, options.Token, options.Resume),
		channels: map[string]*Channel{}, aliases: map[string]*Channel{}, patterns: map[string]*Pattern{},
	}
	c.session.owner = c
	c.dispatcher = &dispatcher{overflowed: c.overflowed, failed: c.panicked}
	c.me, c.party = &Me{client: c}, &Party{client: c}
	return c, nil
}

// Connect makes a client and connects it.
func Connect(ctx context.Context, url string, options Options) (*Client, error) {
	c, err := New(url, options)
	if err != nil {
		return nil, err
	}
	return c, c.Connect(ctx)
}

// Connect returns when the session is open. It fails when the server refuses; a server that does not answer is tried again until the
// context ends.
func (c *Client) Connect(ctx context.Context) error { return c.session.start(ctx) }

// Close ends the session: the user leaves all channels at once, without a grace period.
func (c *Client) Close(ctx context.Context) { c.session.stop(ctx, true) }

// Suspend closes the connection and keeps the session; Connect resumes it as long as the server keeps it.
func (c *Client) Suspend() { c.session.stop(context.Background(), false) }

// State is the state of the connection.
func (c *Client) State() State { defer c.lock()(); return c.session.state }

// Transport is the transport in use, or "".
func (c *Client) Transport() Transport { defer c.lock()(); return c.session.transport }

// Node is the name of the server.
func (c *Client) Node() string { defer c.lock()(); return c.session.hello.Node }

// Err is why the client is closed, or nil.
func (c *Client) Err() error {
	defer c.lock()()
	if c.session.ended == nil {
		return nil
	}
	return c.session.ended
}

// Ticket is what another process needs to resume this session, as Options.Resume; nil: there is none. Its Session is a secret.
func (c *Client) Ticket() *Ticket {
	defer c.lock()()
	if c.session.ticket.Session == "" {
		return nil
	}
	ticket := c.session.ticket
	return &ticket
}

// Channel is the channel of this name; always the same object.
func (c *Client) Channel(name string) *Channel {
	defer c.lock()()
	found, known := c.channels[name]
	if !known {
		found = newChannel(c, name)
		c.channels[name] = found
	}
	return found
}

// Pattern is all channels that match a Redis glob; always the same object.
func (c *Client) Pattern(glob string) *Pattern {
	defer c.lock()()
	found, known := c.patterns[glob]
	if !known {
		found = &Pattern{client: c, glob: glob}
		c.patterns[glob] = found
	}
	return found
}

// Me is the user of this client.
func (c *Client) Me() *Me { return c.me }

// Party is the party of the user.
func (c *Client) Party() *Party { return c.party }

// Command sends any command of the protocol and returns its reply. A repeatable command is sent again after a lost connection: use it
// only for commands that may be executed twice.
func (c *Client) Command(ctx context.Context, op string, given map[string]any, repeatable bool) (json.RawMessage, error) {
	return c.session.askAs(ctx, op, given, repeatable, nil)
}

// OnOpen is called when the session is open: after Connect, after a resume, and with a new session. It returns a function that
// removes the listener, as all On… methods do.
func (c *Client) OnOpen(call func(Opened)) (remove func()) { return on(c, &c.opens, call) }

// OnReconnecting is called when the connection is lost, with the reason.
func (c *Client) OnReconnecting(call func(why string)) (remove func()) {
	return on(c, &c.reconnecting, call)
}

// OnClosing is called when the server is stopping; the client reconnects after this time.
func (c *Client) OnClosing(call func(reconnectAfter time.Duration)) (remove func()) {
	return on(c, &c.closings, call)
}

// OnClosed is called when the client is closed: with ErrSuperseded when another connection took over the session, with another error
// if the client cannot go on, with nil after Close.
func (c *Client) OnClosed(call func(why error)) (remove func()) { return on(c, &c.closes, call) }

// OnGap is called when events were dropped.
func (c *Client) OnGap(call func(Gap)) (remove func()) { return on(c, &c.gaps, call) }

// OnRevoked is called when a fresh token has fewer rights.
func (c *Client) OnRevoked(call func(Revoked)) (remove func()) { return on(c, &c.revocations, call) }

// OnError is called when an attempt to connect or to renew the token failed, or when the server refused what the client sent on its
// own. The client goes on.
func (c *Client) OnError(call func(error)) (remove func()) { return on(c, &c.errors, call) }

// OnEvent is called with every event of the server.
func (c *Client) OnEvent(call func(ServerEvent)) (remove func()) { return on(c, &c.events, call) }

func (c *Client) lock() (unlock func()) {
	c.session.mu.Lock()
	return c.session.mu.Unlock
}

func on[T any](c *Client, to *listeners[T], call func(T)) (remove func()) {
	defer c.lock()()
	number := to.add(call)
	return func() {
		defer c.lock()()
		to.remove(number)
	}
}

// ---- called by the session, under its lock

func (c *Client) onOpen(opened *hello, another bool) {
	c.party.setSnapshotJSON(opened.Party)
	if !another {
		c.opens.emit(c.dispatcher, false, Opened{Resumed: opened.Resumed})
	}
}

func (c *Client) onReset(failed []error) {
	c.opens.emit(c.dispatcher, false, Opened{Reset: true, Failed: failed})
}

func (c *Client) onReconnecting(why string) { c.reconnecting.emit(c.dispatcher, false, why) }

func (c *Client) onClosing(after time.Duration) { c.closings.emit(c.dispatcher, false, after) }

func (c *Client) onError(why error) { c.errors.emit(c.dispatcher, false, why) }

func (c *Client) onEnd(final *Error) {
	if final.Code == CodeClosed {
		c.closes.emit(c.dispatcher, false, nil)
		return
	}
	c.closes.emit(c.dispatcher, false, error(final))
}

func (c *Client) restore() {
	for _, channel := range c.channels {
		channel.restore()
	}
	for _, pattern := range c.patterns {
		pattern.restore()
	}
}

func (c *Client) onEvent(f *frame) {
	if f.Event == "" {
		c.party.setSnapshotJSON(f.Party)
		return
	}
	var message int64
	if len(f.MessageID) > 0 && f.Event != "message" && json.Unmarshal(f.MessageID, &message) == nil {
		// An inbox message comes again in each session until it is acknowledged.
		if message <= c.lastMessage {
			return
		}
		c.lastMessage = message
	}
	c.events.emit(c.dispatcher, true, ServerEvent{f.Event, f.raw})
	switch f.Event {
	case "message":
		c.takeMessage(readMessage(f))
	case "user_online", "user_offline", "client_online", "client_updated", "client_offline", "presence", "presence_mode":
		if channel := c.named(f.Channel); channel != nil {
			channel.presence.takeJSON(f.raw)
		}
	case "party":
		c.party.takeJSON(f.raw, c.me.user())
	case "status", "statuses", "inbox":
		c.me.take(f)
	case "gap":
		c.takeGap(f)
	case "revoked":
		c.takeRevoked(f)
	}
}

func (c *Client) takeMessage(message Message) {
	const party = "party#"
	if len(message.Channel) > len(party) && message.Channel[:len(party)] == party {
		// Members receive it without subscribing.
		c.party.says.emit(c.dispatcher, true, message)
	}
	own := c.session.noEcho && message.Client != "" && message.Client == c.session.hello.Client
	if channel := c.named(&message.Channel); channel != nil && (channel.subscribed || channel.subscribing > 0) {
		channel.take(message, own)
	}
	if own {
		return
	}
	for _, pattern := range c.patterns {
		if pattern.subscribed && globMatches(pattern.glob, message.Channel) {
			pattern.messages.emit(c.dispatcher, true, message)
		}
	}
}

func (c *Client) takeGap(f *frame) {
	gap := Gap{}
	_ = json.Unmarshal(f.From, &gap.From)
	_ = json.Unmarshal(f.To, &gap.To)
	switch {
	case f.Channel != nil:
		gap.Channel = *f.Channel
		if channel := c.named(f.Channel); channel != nil {
			channel.takeGap(gap)
		}
	case f.Pattern != nil:
		gap.Pattern = *f.Pattern
		if pattern := c.patterns[*f.Pattern]; pattern != nil {
			pattern.gaps.emit(c.dispatcher, false, gap)
		}
	default:
		for _, channel := range c.channels {
			channel.takeGap(gap)
		}
		for _, pattern := range c.patterns {
			pattern.gaps.emit(c.dispatcher, false, gap)
		}
		if c.party.current != nil {
			c.party.refresh()
		}
		c.me.reload()
	}
	c.gaps.emit(c.dispatcher, false, gap)
}

func (c *Client) takeRevoked(f *frame) {
	revoked := Revoked{}
	_ = json.Unmarshal(f.raw, &revoked)
	if f.Pattern != nil {
		if pattern := c.patterns[*f.Pattern]; pattern != nil {
			pattern.subscribed = false
		}
	} else if channel := c.named(f.Channel); channel != nil {
		channel.takeRevoked(revoked.Verb)
	}
	c.revocations.emit(c.dispatcher, false, revoked)
}

func (c *Client) named(name *string) *Channel {
	if name == nil {
		return nil
	}
	if channel, known := c.aliases[*name]; known {
		return channel
	}
	return c.channels[*name]
}

// ---- called by the dispatcher

func (c *Client) overflowed(dropped int) {
	defer c.lock()()
	gap := Gap{Overflow: dropped}
	for _, channel := range c.channels {
		channel.gaps.emit(c.dispatcher, false, gap)
	}
	c.gaps.emit(c.dispatcher, false, gap)
}

func (c *Client) panicked(why any) {
	c.session.fail(newError(CodeFailed, fmt.Sprintf("a function given to the client panicked: %v", why)))
}
