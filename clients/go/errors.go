package tavern

import (
	"encoding/json"
	"errors"
	"time"
)

// The client's own codes. All other codes are those of the server.
const (
	CodeClosed           = "closed"            // the client is closed
	CodeSuperseded       = "superseded"        // another connection took over the session; do not reconnect
	CodeUnknownOutcome   = "unknown_outcome"   // the connection was lost before the reply; the command may have been executed
	CodeTimeout          = "timeout"           // no reply in time
	CodeCancelled        = "cancelled"         // the context of the call was cancelled
	CodeFailed           = "failed"            // the client itself failed, or a function given to it panicked; create a new client
	CodeUnreachable      = "unreachable"       // no server answered a request of Backend
	CodeUnexpectedAnswer = "unexpected_answer" // the answer is not one of a Tavern server
)

// Errors to compare with errors.Is.
var (
	ErrClosed         = &Error{Code: CodeClosed}
	ErrSuperseded     = &Error{Code: CodeSuperseded}
	ErrUnknownOutcome = &Error{Code: CodeUnknownOutcome}
	ErrTimeout        = &Error{Code: CodeTimeout}
	ErrFailed         = &Error{Code: CodeFailed}
)

// Error is a refusal of the server, or an error of the client. Code is for programs, Message for people.
type Error struct {
	Code    string
	Message string
	// How long to wait before the same command is sent again, if the server says so.
	RetryAfter time.Duration
	// The caller's party, when a party command was refused.
	Party *PartySnapshot

	hasRetryAfter bool
	cause         error
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause, for example context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.cause }

// Is compares the codes.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// CodeOf returns the code of an error, or "" if it is not of this package.
func CodeOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

func newError(code, message string) *Error { return &Error{Code: code, Message: message} }

// errorFromWire reads the `error` member of a reply; it tolerates any content.
func errorFromWire(raw json.RawMessage) *Error {
	var read struct {
		Code         json.RawMessage `json:"code"`
		Message      json.RawMessage `json:"message"`
		RetryAfterMS json.RawMessage `json:"retry_after_ms"`
		Party        json.RawMessage `json:"party"`
	}
	found := newError("internal", "the server gave no reason")
	if json.Unmarshal(raw, &read) != nil {
		return found
	}
	var text string
	if json.Unmarshal(read.Code, &text) == nil && text != "" {
		found.Code = text
	}
	if json.Unmarshal(read.Message, &text) == nil && text != "" {
		found.Message = text
	}
	var wait float64
	if len(read.RetryAfterMS) > 0 && json.Unmarshal(read.RetryAfterMS, &wait) == nil && wait >= 0 && wait < 1e10 {
		found.RetryAfter, found.hasRetryAfter = time.Duration(wait*float64(time.Millisecond)), true
	}
	var party *PartySnapshot
	if len(read.Party) > 0 && json.Unmarshal(read.Party, &party) == nil {
		found.Party = party
	}
	return found
}

// linkLost says that the connection has ended. code is the WebSocket close code, or 0; unsent: the server cannot have received the
// last command.
type linkLost struct {
	why    string
	code   int
	unsent bool
}

func (l *linkLost) Error() string { return l.why }

// linkRefused says that something answered, but not as this transport requires (a proxy, for example): another one may work.
type linkRefused struct {
	why string
	// There was no hello in time: the server may also be down.
	silent bool
}

func (l *linkRefused) Error() string { return l.why }
