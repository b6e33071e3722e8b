package tavern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// The most commands that wait for a connection or a reply.
	waitingCommands = 16_384
	byeTimeout      = 2 * time.Second
	tokenTimeout    = 20 * time.Second
	// Failures of a transport before the next is tried: one that never worked, and one that did.
	refusalsNew, refusalsWorked = 2, 5
	// A connection that lasted this long resets the backoff.
	steadyTime = 5 * time.Second
	// How long a transport stands in for the preferred one, at least: up to twice as long.
	standInTime = 30 * time.Second
)

// State is the state of a client's connection.
type State string

// The states of a client.
const (
	StateIdle       State = "idle"       // not started
	StateConnecting State = "connecting" // not connected; the client tries until it is
	StateOpen       State = "open"       // connected, with an open session
	StateSuspended  State = "suspended"  // not connected; Connect resumes the session
	StateClosed     State = "closed"     // the session has ended; Connect starts a new one
)

// owner is told what happens to a session. Its methods are called under the lock of the session.
type owner interface {
	onEvent(event *frame)
	onOpen(opened *hello, another bool)
	onReset(failed []error)
	onReconnecting(why string)
	onClosing(after time.Duration)
	onEnd(final *Error)
	// restore sends the commands that restore everything in a new session.
	restore()
	onError(why error)
}

// session is one session over any number of connections: it connects, resumes, retries commands that may be repeated, and drops
// duplicate events. It knows nothing about channels or parties.
//
// Must hold: an event is delivered once; a command gets one result, a reply or an error, even when a part of the client fails; a
// superseded session never reconnects.
type session struct {
	settings
	owner owner

	// Guards everything below, and the state of the owner.
	mu        sync.Mutex
	token     string
	ticket    Ticket
	state     State
	transport Transport
	hello     hello
	// Why the client is closed; nil while it is running.
	ended *Error
	// Closed, and not only suspended.
	over    bool
	had     bool
	ids     int64
	outbox  []*command
	pending map[int64]*command
	// The commands of the latest restore that are not answered yet.
	restoring  *restoring
	acked      int64
	receivedAt time.Time
	// The token must be replaced; the token has just been replaced.
	stale, fresh  bool
	leaving       bool
	closing       *time.Duration
	lastFailure   string
	first         *opening
	cancel        context.CancelFunc
	done          chan struct{}
	wake          chan struct{}
	addressAt     int
	transportAt   int
	refusals      int
	worked        map[Transport]bool
	attempts      uint64
	random        func() float64
	faultInjected func(task string)
}

// opening is what Connect waits for.
type opening struct {
	done chan struct{}
	err  error
}

func (o *opening) finish(err error) {
	select {
	case <-o.done:
	default:
		o.err = err
		close(o.done)
	}
}

func newSession(checked settings, token string, resume *Ticket) *session {
	s := &session{
		settings: checked, token: token, state: StateIdle, over: true, ended: newError(CodeClosed, "not connected"), pending: map[int64]*command{},
		wake: make(chan struct{}, 1), worked: map[Transport]bool{}, random: rand.New(rand.NewSource(time.Now().UnixNano())).Float64, faultInjected: func(string) {},
	}
	if resume != nil {
		s.ticket, s.had = *resume, true
	}
	return s
}

// start connects; it returns when the session is open.
func (s *session) start(ctx context.Context) error {
	s.mu.Lock()
	if s.ended != nil {
		s.ended, s.over, s.leaving, s.state = nil, false, false, StateConnecting
		s.lastFailure = "no attempt has finished"
		s.first = &opening{done: make(chan struct{})}
		running, cancel := context.WithCancel(context.Background())
		s.cancel, s.done = cancel, make(chan struct{})
		go s.run(running, s.done)
	}
	first := s.first
	s.mu.Unlock()
	select {
	case <-first.done:
		return first.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	why := s.lastFailure
	s.mu.Unlock()
	s.stop(context.Background(), false)
	return interrupted(ctx, "not connected: "+why)
}

// stop closes the connection; with endSession it also ends the session.
func (s *session) stop(ctx context.Context, endSession bool) {
	s.mu.Lock()
	s.leaving = true
	open := s.state == StateOpen
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if endSession && open {
		bye, cancelBye := context.WithTimeout(ctx, byeTimeout)
		// Without an answer the server still sees the closed connection.
		_, _ = s.ask(bye, "bye", nil, nil)
		cancelBye()
	}
	if cancel != nil {
		cancel()
		<-done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(newError(CodeClosed, "the client was closed"), !endSession)
}

// run keeps the session connected until it ends.
func (s *session) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	final := s.guarded("run", func() error { return s.keepConnected(ctx) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving {
		s.end(asError(final), false)
	}
}

// guarded runs a part of the client. If it panics, that is its error: the client then ends, and no call waits for ever.
func (s *session) guarded(task string, part func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			s.debug(fmt.Sprintf("%s panicked: %v\n%s", task, panicked, debug.Stack()))
			err = newError(CodeFailed, fmt.Sprintf("the client failed (%s: %v); create a new one", task, panicked))
		}
	}()
	s.faultInjected(task)
	return part()
}

func (s *session) keepConnected(ctx context.Context) error {
	for {
		connected, err := s.connect(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		why := s.serve(ctx, connected)
		connected.close()
		if ctx.Err() != nil {
			return ErrClosed
		}
		if err := s.lost(why, time.Since(began)); err != nil {
			return err
		}
		s.mu.Lock()
		wait := s.nextWait(0)
		if s.closing != nil {
			wait, s.closing = *s.closing, nil
		}
		s.mu.Unlock()
		if !sleep(ctx, wait) {
			return ErrClosed
		}
	}
}

// nextWait is the time until the next attempt; it counts the attempt.
func (s *session) nextWait(retryAfter time.Duration) time.Duration {
	s.attempts++
	return backoffWait(s.attempts, s.random(), retryAfter)
}

// lost prepares the next connection; an error ends the client.
func (s *session) lost(why error, lasted time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transport = ""
	s.debug(fmt.Sprintf("connection lost: %v", why))
	if lasted > steadyTime {
		s.attempts = 0
	}
	if s.leaving {
		return ErrClosed
	}
	if err := s.mayReconnect(why); err != nil {
		return err
	}
	if s.worked[s.transports[0]] {
		// Try the preferred transport again after a fallback.
		s.transportAt, s.refusals = 0, 0
	}
	s.state = StateConnecting
	s.requeue()
	s.owner.onReconnecting(why.Error())
	return nil
}

// mayReconnect is the reason why the client must not reconnect, or nil.
func (s *session) mayReconnect(why error) error {
	var lost *linkLost
	var refused *linkRefused
	if errors.As(why, &refused) {
		return nil
	}
	if !errors.As(why, &lost) {
		return why
	}
	then, final := afterClose(lost.code, s.getToken != nil)
	if final != nil {
		return final
	}
	s.stale = s.stale || then == fetchToken
	return nil
}

// connect tries until it is connected. A failure may switch the transport or the address, or end the client.
func (s *session) connect(ctx context.Context) (link, error) {
	for {
		var opened *hello
		var connecting link
		err := s.provideToken(ctx)
		s.mu.Lock()
		transport := s.transports[s.transportAt%len(s.transports)]
		given := access{
			address: s.addresses[s.addressAt%len(s.addresses)], http: s.http, token: s.token, user: s.user, statuses: s.statuses,
			ticket: s.ticket, openTimeout: s.openTimeout, seq: s.seq,
		}
		s.mu.Unlock()
		if err == nil {
			connecting = newLink(transport, given)
			began := time.Now()
			opened, err = connecting.open(ctx)
			var lost *linkLost
			if errors.As(err, &lost) && time.Since(began) >= s.openTimeout {
				err = &linkRefused{why: fmt.Sprintf("no hello within %v", s.openTimeout), silent: true}
			}
		}
		if err == nil {
			s.opened(transport, opened)
			return connecting, nil
		}
		if connecting != nil {
			connecting.close()
		}
		if ctx.Err() != nil {
			return nil, ErrClosed
		}
		wait, err := s.notConnected(transport, err)
		if err != nil {
			return nil, err
		}
		if !sleep(ctx, wait) {
			return nil, ErrClosed
		}
	}
}

func (s *session) seq() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ticket.Seq
}

// notConnected gives the time until the next attempt, or an error that ends the client.
func (s *session) notConnected(transport Transport, why error) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastFailure = why.Error()
	s.debug(fmt.Sprintf("not connected (%s): %v", transport, why))
	var lost *linkLost
	var blocked *linkRefused
	var refused *Error
	switch {
	case errors.As(why, &blocked):
		if blocked.silent {
			// The server, or something before it that does not know this transport.
			s.addressAt++
		}
		s.refusals++
		most := refusalsNew
		if s.worked[transport] {
			most = refusalsWorked
		}
		if s.refusals >= most {
			s.transportAt, s.refusals = s.transportAt+1, 0
		}
	case errors.As(why, &lost):
		s.addressAt++
		if s.worked[s.transports[0]] {
			// No server answered, so the transport is not at fault: go back to the preferred one.
			s.transportAt, s.refusals = 0, 0
		}
	case errors.As(why, &refused):
		switch afterHello(refused, s.getToken != nil, s.fresh) {
		case fetchToken:
			s.stale = true
			return 0, nil
		case closeClient:
			return 0, refused
		}
		s.owner.onError(refused)
		return s.nextWait(refused.RetryAfter), nil
	default:
		return 0, why
	}
	s.owner.onError(&Error{Code: CodeUnreachable, Message: why.Error(), cause: why})
	return s.nextWait(0), nil
}

// opened: the session was resumed, or a new one has started.
func (s *session) opened(transport Transport, opened *hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resumed := opened.Resumed && !opened.Reset
	another := s.had && !resumed
	s.ticket.Session = opened.Session
	if !resumed {
		s.ticket.Seq, s.acked = 0, 0
	}
	s.had, s.fresh, s.refusals = true, false, 0
	s.worked[transport] = true
	opened.Resumed = resumed
	s.hello, s.state, s.transport, s.receivedAt = *opened, StateOpen, transport, time.Now()
	s.debug(fmt.Sprintf("connected (%s), resumed: %t", transport, resumed))
	s.awake()
	s.owner.onOpen(opened, another)
	if another {
		s.restoreSession()
	}
	s.first.finish(nil)
}

// restoreSession sends the commands that restore everything before any that wait, and tells the owner after the last reply.
func (s *session) restoreSession() {
	waiting := s.outbox
	s.outbox = nil
	sent := &restoring{}
	s.restoring = sent
	s.owner.restore()
	for _, one := range s.outbox {
		sent.left++
		one.onEnd = func(refused *Error) {
			if refused != nil {
				sent.failed = append(sent.failed, refused)
			}
			sent.left--
			// After a newer restore, that one tells.
			if sent.left == 0 && s.restoring == sent && s.ended == nil {
				s.owner.onReset(sent.failed)
			}
		}
	}
	s.outbox = append(s.outbox, waiting...)
	if sent.left == 0 {
		s.owner.onReset(nil)
	}
}

type restoring struct {
	left   int
	failed []error
}

// serve runs a connection until it ends, and says why.
func (s *session) serve(ctx context.Context, connected link) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := map[string]func() error{
		"read":      func() error { return s.read(ctx, connected) },
		"write":     func() error { return s.write(ctx, connected) },
		"heartbeat": func() error { return s.heartbeat(ctx) },
		"renew":     func() error { return s.renew(ctx) },
		"prefer":    func() error { return s.prefer(ctx) },
	}
	type ending struct {
		task string
		err  error
	}
	endings := make(chan ending, len(parts))
	for task, part := range parts {
		task, part := task, part
		go func() { endings <- ending{task, s.guarded(task, part)} }()
	}
	first := <-endings
	left := len(parts) - 1
	if first.task == "write" && ctx.Err() == nil {
		// The reader knows the close code and may have more events.
		var lost *linkLost
		if errors.As(first.err, &lost) && !lost.unsent {
			select {
			case second := <-endings:
				left--
				if second.task == "read" {
					first = second
				}
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	cancel()
	connected.close()
	for ; left > 0; left-- {
		<-endings
	}
	return first.err
}

func (s *session) read(ctx context.Context, connected link) error {
	for {
		frames, err := connected.receive(ctx)
		if err != nil {
			return err
		}
		if err := s.takeAll(frames); err != nil {
			return err
		}
	}
}

func (s *session) write(ctx context.Context, connected link) error {
	for {
		next := s.nextCommand()
		if next == nil {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		reply, err := connected.send(ctx, next.text)
		if err != nil {
			var lost *linkLost
			if errors.As(err, &lost) && lost.unsent {
				s.mu.Lock()
				next.sent = false
				s.mu.Unlock()
			}
			return err
		}
		if reply != nil {
			if err := s.takeAll([]*frame{reply}); err != nil {
				return err
			}
		}
	}
}

// heartbeat acknowledges events once per heartbeat, and drops a connection without traffic for two heartbeats.
func (s *session) heartbeat(ctx context.Context) error {
	s.mu.Lock()
	transport, period := s.transport, time.Duration(s.hello.HeartbeatMS)*time.Millisecond
	s.mu.Unlock()
	if transport == Poll {
		// Each poll acknowledges and has its own timeout.
		<-ctx.Done()
		return ctx.Err()
	}
	if period <= 0 {
		period = 15 * time.Second
	} else if period < 100*time.Millisecond {
		period = 100 * time.Millisecond
	}
	for sleep(ctx, period) {
		if err := s.beat(transport, period); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *session) beat(transport Transport, period time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := time.Since(s.receivedAt)
	switch {
	case silent > 2*period:
		return &linkLost{why: "heartbeat timeout"}
	case len(s.outbox) > 0 || s.ended != nil:
		// Waiting commands serve as the heartbeat.
		return nil
	case s.ticket.Seq > s.acked:
		s.acked = s.ticket.Seq
		_, err := s.begin("ack", json.RawMessage(fmt.Sprintf(`{"seq":%d}`, s.acked)), true, nil)
		return err
	case transport == WebSocket && silent > period*9/10:
		_, err := s.begin("ping", nil, true, nil)
		return err
	}
	return nil
}

// prefer ends a connection over a fallback after a while, if the preferred transport has worked before.
func (s *session) prefer(ctx context.Context) error {
	s.mu.Lock()
	fallback := s.transport != s.transports[0] && s.worked[s.transports[0]]
	wait := time.Duration(float64(standInTime) * (1 + s.random()))
	s.mu.Unlock()
	if fallback && sleep(ctx, wait) {
		return &linkLost{why: "back to " + string(s.transports[0])}
	}
	<-ctx.Done()
	return ctx.Err()
}

// renew replaces the token before it expires and sends the new one to the server.
func (s *session) renew(ctx context.Context) error {
	for {
		s.mu.Lock()
		left, known := remaining(s.token)
		s.mu.Unlock()
		if !known || s.getToken == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		if !sleep(ctx, renewAfter(left)) {
			return ctx.Err()
		}
		s.mu.Lock()
		s.stale = true
		s.mu.Unlock()
		if err := s.provideToken(ctx); err != nil {
			if CodeOf(err) == CodeFailed {
				return err
			}
			// The connection stays until the server ends it.
			s.mu.Lock()
			s.owner.onError(err)
			s.mu.Unlock()
			continue
		}
		s.mu.Lock()
		token := s.token
		s.mu.Unlock()
		if _, err := s.ask(ctx, "hello", members{"token": token}, nil); err != nil {
			return &linkLost{why: fmt.Sprintf("the new token was rejected: %v", err)}
		}
	}
}

// provideToken asks the app for a token when there is none that is still good.
func (s *session) provideToken(ctx context.Context) error {
	if s.getToken == nil {
		return nil
	}
	s.mu.Lock()
	left, known := remaining(s.token)
	good := s.token != "" && !s.stale && (!known || left > 0)
	s.mu.Unlock()
	if good {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	type answer struct {
		token string
		err   error
	}
	// Its own goroutine: a function that ignores its context must not stop the client.
	answered := make(chan answer, 1)
	go func() {
		var given answer
		given.err = s.guarded("GetToken", func() (err error) {
			given.token, err = s.getToken(ctx)
			return err
		})
		answered <- given
	}()
	select {
	case given := <-answered:
		if CodeOf(given.err) == CodeFailed {
			return given.err
		}
		if given.err != nil || given.token == "" {
			// The source of tokens may be down for a while: retry, as with a server that does not answer.
			return &linkLost{why: fmt.Sprintf("GetToken failed: %v", given.err), unsent: true}
		}
		s.mu.Lock()
		s.token, s.stale, s.fresh = given.token, false, true
		s.mu.Unlock()
		return nil
	case <-ctx.Done():
		return &linkLost{why: "GetToken did not answer in time", unsent: true}
	}
}

// end closes the session and fails every command; with keep they wait for the next start.
func (s *session) end(final *Error, keep bool) {
	if s.over || (s.ended != nil && keep) {
		return
	}
	s.state, s.ended, s.over, s.transport = StateClosed, final, !keep, ""
	s.first.finish(final)
	if keep {
		s.state = StateSuspended
		s.requeue()
		return
	}
	// What starts next is another session.
	s.ticket = Ticket{}
	s.failAll(final)
	s.owner.onEnd(final)
}

// fail ends a client that cannot go on.
func (s *session) fail(final *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(final, false)
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *session) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func asError(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	return &Error{Code: CodeFailed, Message: fmt.Sprintf("the client failed: %v; create a new one", err), cause: err}
}

// interrupted is the error of a call whose context has ended.
func interrupted(ctx context.Context, message string) *Error {
	code := CodeTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = CodeCancelled
	}
	return &Error{Code: code, Message: message, cause: ctx.Err()}
}

// sleep waits; false: the context has ended.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
