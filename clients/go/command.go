package tavern

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"
)

// command waits to be sent or answered.
type command struct {
	id   int64
	op   string
	text []byte
	// It may be sent again when its outcome is unknown.
	repeatable bool
	// Called with the ok, under the lock, before any later frame is processed.
	onOK func(ok json.RawMessage) error
	// Called once, under the lock, after the end.
	onEnd func(refused *Error)
	sent  bool
	ended bool
	// How often it was sent again.
	retries int
	done    chan struct{}
	ok      json.RawMessage
	err     *Error
}

func (c *command) finish(ok json.RawMessage, err *Error) {
	if c.ended {
		return
	}
	c.ended, c.ok, c.err = true, ok, err
	close(c.done)
	if c.onEnd != nil {
		c.onEnd(err)
	}
}

// ask sends a command and waits for its end.
func (s *session) ask(ctx context.Context, op string, given members, onOK func(json.RawMessage) error) (json.RawMessage, error) {
	return s.askAs(ctx, op, given, repeatable(op, given), onOK)
}

func (s *session) askAs(ctx context.Context, op string, given members, repeatable bool, onOK func(json.RawMessage) error) (json.RawMessage, error) {
	encoded, err := given.encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.mu.Lock()
	asked, err := s.begin(op, encoded, repeatable, onOK)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-asked.done:
	case <-ctx.Done():
		s.forget(ctx, asked)
	}
	if asked.err != nil {
		return nil, asked.err
	}
	return asked.ok, nil
}

// forget ends a command whose caller does not wait any longer.
func (s *session) forget(ctx context.Context, asked *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, asked.id)
	message := "no reply to " + asked.op + " in time"
	if s.state != StateOpen {
		message += "; not connected: " + s.lastFailure
	}
	if asked.sent && !asked.repeatable {
		asked.finish(nil, &Error{Code: CodeUnknownOutcome, Message: message + "; it may have been executed", cause: ctx.Err()})
		return
	}
	asked.finish(nil, interrupted(ctx, message))
}

// begin puts a command into the queue. The lock is held.
func (s *session) begin(op string, encoded json.RawMessage, repeatable bool, onOK func(json.RawMessage) error) (*command, error) {
	if s.ended != nil {
		return nil, s.ended
	}
	if len(s.outbox)+len(s.pending) >= waitingCommands {
		return nil, newError("busy", fmt.Sprintf("%d commands are already waiting; try again later", waitingCommands))
	}
	s.ids++
	begun := &command{
		id: s.ids, op: op, text: commandText(s.ids, op, encoded), repeatable: repeatable, onOK: onOK, done: make(chan struct{}),
	}
	s.outbox = append(s.outbox, begun)
	s.awake()
	return begun, nil
}

// nextCommand takes the next command to send from the queue; nil: there is none.
func (s *session) nextCommand() *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.outbox) > 0 {
		next := s.outbox[0]
		s.outbox[0] = nil
		s.outbox = s.outbox[1:]
		if next.ended {
			continue
		}
		if most := s.hello.FrameBytes; most > 0 && len(next.text) > most {
			// The server would close the connection.
			next.finish(nil, newError("too_large", fmt.Sprintf("%s has more than %d bytes", next.op, most)))
			continue
		}
		next.sent = true
		s.pending[next.id] = next
		return next
	}
	return nil
}

// takeAll processes frames of the server. An error ends the connection.
func (s *session) takeAll(frames []*frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivedAt = time.Now()
	for _, one := range frames {
		if err := s.take(one); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) take(f *frame) error {
	switch {
	case f.Event != "":
		return s.takeEvent(f)
	case len(f.ID) > 0:
		var id int64
		if json.Unmarshal(f.ID, &id) != nil {
			return nil
		}
		if asked, known := s.pending[id]; known {
			return s.answered(asked, f)
		}
	case len(f.Party) > 0:
		s.owner.onEvent(f)
	}
	return nil
}

func (s *session) takeEvent(f *frame) error {
	if f.Seq != nil {
		if *f.Seq <= s.ticket.Seq {
			return nil
		}
		s.ticket.Seq = *f.Seq
	}
	switch f.Event {
	case "closing":
		var read struct {
			ReconnectAfterMS int64 `json:"reconnect_after_ms"`
		}
		_ = json.Unmarshal(f.raw, &read)
		wait := time.Duration(read.ReconnectAfterMS) * time.Millisecond
		if wait < 0 || wait > time.Hour {
			wait = 0
		}
		s.closing = &wait
		s.owner.onClosing(wait)
		return &linkLost{why: "the server is stopping"}
	case "superseded":
		return &linkLost{why: "superseded", code: closeSuperseded}
	}
	s.owner.onEvent(f)
	return nil
}

func (s *session) answered(asked *command, f *frame) error {
	ok, err := f.answer()
	if err == nil {
		if asked.onOK != nil {
			if err := asked.onOK(ok); err != nil {
				delete(s.pending, asked.id)
				asked.finish(nil, newError(CodeUnexpectedAnswer, fmt.Sprintf("the reply to %s: %v", asked.op, err)))
				return nil
			}
		}
		delete(s.pending, asked.id)
		asked.finish(ok, nil)
		return nil
	}
	delete(s.pending, asked.id)
	refused := asError(err)
	retried, err := s.retry(asked, refused)
	if !retried {
		asked.finish(nil, refused)
	}
	return err
}

// retry decides whether a refused command is sent again. An error ends the connection.
func (s *session) retry(asked *command, refused *Error) (bool, error) {
	if asked.ended {
		return false, nil
	}
	then, wait := afterReply(asked.op, asked.repeatable, s.getToken != nil, asked.retries, refused)
	if then == reportError {
		return false, nil
	}
	asked.retries++
	asked.sent = false
	if then == retryLater {
		s.delayed(asked, wait)
		return true, nil
	}
	s.pending[asked.id] = asked
	s.stale = s.stale || refused.Code == "unauthenticated"
	return true, &linkLost{why: refused.Error(), unsent: true}
}

// delayed puts a command into the queue again, later. Until then it is pending, so that it fails with the session.
func (s *session) delayed(asked *command, wait time.Duration) {
	s.pending[asked.id] = asked
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// It may have ended, or be in the queue again after a lost connection.
		if s.pending[asked.id] != asked || asked.sent {
			return
		}
		delete(s.pending, asked.id)
		s.outbox = append(s.outbox, asked)
		s.awake()
	})
}

// requeue, after a lost connection: commands that may be repeated are sent again, the others fail with unknown_outcome.
func (s *session) requeue() {
	var again []*command
	var failed []*command
	for _, one := range s.pending {
		switch afterLoss(one.op, one.repeatable, one.sent) {
		case sendAgain, keepWaiting:
			one.sent = false
			again = append(again, one)
		default:
			failed = append(failed, one)
		}
	}
	s.pending = map[int64]*command{}
	sort.Slice(again, func(a, b int) bool { return again[a].id < again[b].id })
	s.outbox = append(again, s.outbox...)
	for _, one := range failed {
		one.finish(nil, newError(CodeUnknownOutcome, "the connection was lost before the reply to "+one.op+"; it may have been executed"))
	}
}

func (s *session) failAll(why *Error) {
	all := s.outbox
	for _, one := range s.pending {
		all = append(all, one)
	}
	s.outbox, s.pending = nil, map[int64]*command{}
	for _, one := range all {
		one.finish(nil, why)
	}
}

// decode reads an ok into a value.
func decode(ok json.RawMessage, into any) error {
	if err := json.Unmarshal(ok, into); err != nil {
		return &Error{Code: CodeUnexpectedAnswer, Message: err.Error(), cause: errors.Unwrap(err)}
	}
	return nil
}
