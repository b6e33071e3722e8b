package tavern

import (
	"strings"
	"time"
)

// The decisions of a session, without state: ../spec.md has the tables, ../vectors the tests.

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 15 * time.Second
	// Retries of a command that the server could not execute, and half of the first wait.
	mostRetries = 5
	retryUnit   = 125 * time.Millisecond
	// How long before its end a token is replaced, at most; the shortest time between two attempts.
	renewEarly, renewPause = time.Minute, 500 * time.Millisecond
)

// backoffWait is the wait before the nth attempt in a row, from 1: random, so that many clients do not come back at once, and never
// shorter than what the server asked for.
func backoffWait(attempt uint64, chance float64, retryAfter time.Duration) time.Duration {
	bound := maxBackoff
	if attempt < 7 {
		bound = firstBackoff << (attempt - 1)
	}
	return time.Duration(chance*float64(bound)) + retryAfter
}

// renewAfter is the time until a token with this much time left is replaced.
func renewAfter(left time.Duration) time.Duration {
	early := left / 4
	if early > renewEarly {
		early = renewEarly
	}
	if wait := left - early; wait > renewPause {
		return wait
	}
	return renewPause
}

// repeatable reports whether a command may be executed twice without harm.
func repeatable(op string, given members) bool {
	switch op {
	case "publish":
		_, named := given["message_id"]
		return named
	case "bye", "party.say":
		return false
	}
	return true
}

// decision is what follows an error.
type decision string

const (
	retryLater     decision = "retry"           // again, after a wait
	reconnectFirst decision = "reconnect"       // the command was not executed: again, in the next connection
	reportError    decision = "report"          // the caller gets the error
	sendAgain      decision = "resend"          // before the commands that wait
	keepWaiting    decision = "keep"            // it was not sent
	dropCommand    decision = "drop"            // nobody waits for it
	outcomeUnknown decision = "unknown_outcome" // the caller gets this error
	fetchToken     decision = "new_token"       // reconnect with a new token
	closeClient    decision = "close"
)

// afterReply decides about a command whose reply is an error, after so many retries.
func afterReply(op string, repeatable, renews bool, retries int, refused *Error) (decision, time.Duration) {
	if retries >= mostRetries || op == "bye" {
		return reportError, 0
	}
	ended := refused.Code == "gone" || (refused.Code == "unauthenticated" && renews)
	// The limits of parties are for the app to see.
	limited := refused.Code == "rate_limited" && !strings.HasPrefix(op, "party.")
	switch {
	case ended && op != "hello":
		return reconnectFirst, 0
	case !repeatable || !(limited || refused.Code == "unavailable"):
		return reportError, 0
	case refused.hasRetryAfter:
		return retryLater, refused.RetryAfter
	}
	return retryLater, retryUnit << (retries + 1)
}

// afterLoss decides about a command when the connection is lost before the reply.
func afterLoss(op string, repeatable, sent bool) decision {
	switch {
	case op == "ack" || op == "ping":
		return dropCommand
	case !sent:
		return keepWaiting
	case repeatable:
		return sendAgain
	}
	return outcomeUnknown
}

// afterHello decides about a refused hello. fresh: the token was fetched for this attempt.
func afterHello(refused *Error, renews, fresh bool) decision {
	switch refused.Code {
	case "unauthenticated":
		if renews && !fresh {
			return fetchToken
		}
	case "rate_limited", "busy", "unavailable", "internal", "gone", "conflict", "blocked":
		return retryLater
	}
	return closeClient
}

// afterClose decides about a close code; 0: none. The error is that of a client that closes.
func afterClose(code int, renews bool) (decision, *Error) {
	switch {
	case code == closeSuperseded:
		return closeClient, newError(CodeSuperseded, "another connection took over this session")
	case code == closeTokenExpired && renews:
		return fetchToken, nil
	case code == closeTokenExpired:
		return closeClient, newError("unauthenticated", "the token has expired; pass GetToken to renew it")
	case code >= closeStopFirst && code <= closeStopLast:
		return closeClient, newError("gone", "the server closed the session for good")
	}
	return reconnectFirst, nil
}
