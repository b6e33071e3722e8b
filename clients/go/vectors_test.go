package tavern

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// vectors runs a test for each case of a file of ../vectors.
func vectors[T any](t *testing.T, name string, check func(t *testing.T, one T)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "vectors", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []json.RawMessage `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		t.Fatalf("%s: no cases: %v", name, err)
	}
	for _, raw := range file.Cases {
		var one T
		if err := json.Unmarshal(raw, &one); err != nil {
			t.Fatal(err)
		}
		t.Run(string(raw[:min(len(raw), 70)]), func(t *testing.T) { check(t, one) })
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, not %v", what, got, want)
	}
}

func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var read any
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// running is a client without a connection whose commands wait in its queue.
func running(t *testing.T, options Options) *Client {
	t.Helper()
	c, err := New("http://127.0.0.1:1", options)
	if err != nil {
		t.Fatal(err)
	}
	c.session.ended, c.session.over = nil, false
	return c
}

// asked takes the commands that wait.
func asked(c *Client) []map[string]any {
	var all []map[string]any
	for next := c.session.nextCommand(); next != nil; next = c.session.nextCommand() {
		var read map[string]any
		_ = json.Unmarshal(next.text, &read)
		all = append(all, read)
	}
	return all
}

func TestTheFilesOfVectorsAreAllRun(t *testing.T) {
	found, err := filepath.Glob("../vectors/*.json")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range []string{"presence", "party", "status", "replies", "lost", "hello", "close", "backoff", "gaps", "glob", "repeatable", "token", "bounds"} {
		known["../vectors/"+name+".json"] = true
	}
	for _, path := range found {
		if !known[path] {
			t.Errorf("%s is not run", path)
		}
	}
}

func TestBoundsVectors(t *testing.T) {
	own := map[string]int64{
		"waiting_commands": waitingCommands, "unread_events": waitingCalls, "kept_changes": bufferedChanges, "answer_bytes": maxBody,
		"command_ms": defaultCommandTimeout.Milliseconds(), "connect_ms": defaultConnectTimeout.Milliseconds(), "bye_ms": byeTimeout.Milliseconds(),
		"token_ms": tokenTimeout.Milliseconds(), "steady_ms": steadyTime.Milliseconds(), "stand_in_ms": standInTime.Milliseconds(),
		"second_half_ms": announceWait.Milliseconds(), "failures": refusalsNew, "failures_worked": refusalsWorked,
	}
	vectors(t, "bounds", func(t *testing.T, one struct {
		Name  string
		Value int64
	}) {
		same(t, one.Name, own[one.Name], one.Value)
	})
}

func TestGlobVectors(t *testing.T) {
	vectors(t, "glob", func(t *testing.T, one struct {
		Pattern, Name string
		Matches       bool
	}) {
		same(t, "matches", globMatches(one.Pattern, one.Name), one.Matches)
	})
}

func TestBackoffVectors(t *testing.T) {
	vectors(t, "backoff", func(t *testing.T, one struct {
		Attempt      uint64
		Chance       float64
		RetryAfterMS int64 `json:"retry_after_ms"`
		WaitMS       int64 `json:"wait_ms"`
	}) {
		wait := backoffWait(one.Attempt, one.Chance, time.Duration(one.RetryAfterMS)*time.Millisecond)
		same(t, "wait", wait.Milliseconds(), one.WaitMS)
	})
}

func TestTokenVectors(t *testing.T) {
	vectors(t, "token", func(t *testing.T, one struct {
		LeftMS       int64 `json:"left_ms"`
		RenewAfterMS int64 `json:"renew_after_ms"`
	}) {
		same(t, "wait", renewAfter(time.Duration(one.LeftMS)*time.Millisecond).Milliseconds(), one.RenewAfterMS)
	})
}

func TestRepeatableVectors(t *testing.T) {
	vectors(t, "repeatable", func(t *testing.T, one struct {
		Op         string
		Members    members
		Repeatable bool
	}) {
		same(t, "repeatable", repeatable(one.Op, one.Members), one.Repeatable)
	})
}

func TestReplyVectors(t *testing.T) {
	vectors(t, "replies", func(t *testing.T, one struct {
		Op                 string
		Repeatable, Renews bool
		Retries            int
		Error              json.RawMessage
		Then               decision
		WaitMS             *int64 `json:"wait_ms"`
	}) {
		then, wait := afterReply(one.Op, one.Repeatable, one.Renews, one.Retries, errorFromWire(one.Error))
		same(t, "then", then, one.Then)
		if one.WaitMS != nil {
			same(t, "wait", wait.Milliseconds(), *one.WaitMS)
		}
	})
}

func TestLostVectors(t *testing.T) {
	vectors(t, "lost", func(t *testing.T, one struct {
		Op               string
		Repeatable, Sent bool
		Then             decision
	}) {
		same(t, "then", afterLoss(one.Op, one.Repeatable, one.Sent), one.Then)
	})
}

func TestHelloVectors(t *testing.T) {
	vectors(t, "hello", func(t *testing.T, one struct {
		Error         json.RawMessage
		Renews, Fresh bool
		Then          decision
		WaitMS        *int64 `json:"wait_ms"`
	}) {
		refused := errorFromWire(one.Error)
		same(t, "then", afterHello(refused, one.Renews, one.Fresh), one.Then)
		if one.WaitMS != nil {
			same(t, "wait", backoffWait(1, 0, refused.RetryAfter).Milliseconds(), *one.WaitMS)
		}
	})
}

func TestCloseVectors(t *testing.T) {
	vectors(t, "close", func(t *testing.T, one struct {
		Code   int
		Renews bool
		Then   decision
		Error  string
	}) {
		then, final := afterClose(one.Code, one.Renews)
		same(t, "then", then, one.Then)
		if one.Error != "" && (final == nil || final.Code != one.Error) {
			t.Errorf("the error is %v", final)
		}
	})
}

func TestPartyVectors(t *testing.T) {
	vectors(t, "party", func(t *testing.T, one struct {
		Party *PartySnapshot
		Me    string
		Event json.RawMessage
		Gives json.RawMessage
		Asks  bool
	}) {
		c := running(t, Options{})
		c.party.current = one.Party
		c.party.takeJSON(one.Event, one.Me)
		same(t, "party", plain(t, c.party.current), plain(t, one.Gives))
		same(t, "asks", len(asked(c)) > 0, one.Asks)
	})
}

func TestStatusVectors(t *testing.T) {
	vectors(t, "status", func(t *testing.T, one struct {
		Steps []struct {
			Statuses   json.RawMessage
			Status     json.RawMessage
			Unfollowed string
		}
		Gives map[string]map[string]any
	}) {
		c := running(t, Options{})
		for _, step := range one.Steps {
			switch {
			case len(step.Statuses) > 0:
				c.me.take(&frame{Event: "statuses", raw: []byte(`{"statuses":` + string(step.Statuses) + `}`)})
			case len(step.Status) > 0:
				c.me.take(&frame{Event: "status", raw: step.Status})
			default:
				c.me.forget(step.Unfollowed)
			}
		}
		got := plain(t, c.me.Statuses()).(map[string]any)
		same(t, "users", len(got), len(one.Gives))
		for user, members := range one.Gives {
			for name, value := range members {
				same(t, user+"."+name, got[user].(map[string]any)[name], value)
			}
		}
	})
}

func TestPresenceVectors(t *testing.T) {
	type user struct {
		Clients map[string]any
		Name    *string
		Leaving *bool
	}
	vectors(t, "presence", func(t *testing.T, one struct {
		Steps []struct {
			Snapshot *Members
			Event    json.RawMessage
			Stale    bool
		}
		Gives struct {
			Users     map[string]user
			Anonymous map[string]any
			Count     *int
			Version   *int64
			Mode      *string
			Asks      *int
		}
	}) {
		c := running(t, Options{})
		channel := c.Channel("game#1")
		channel.watching = true
		for _, step := range one.Steps {
			switch {
			case step.Snapshot != nil:
				channel.presence.load(*step.Snapshot)
			case step.Stale:
				channel.presence.lose()
			default:
				channel.presence.takeJSON(step.Event)
			}
		}
		presence, gives := channel.presence, one.Gives
		if gives.Users != nil {
			same(t, "users", len(presence.users), len(gives.Users))
			for id, wanted := range gives.Users {
				got, present := presence.users[id]
				if !present {
					t.Errorf("%s is missing", id)
					continue
				}
				if wanted.Clients != nil {
					same(t, id+" clients", states(t, got.Clients), wanted.Clients)
				}
				if wanted.Name != nil {
					same(t, id+" name", got.Name, *wanted.Name)
				}
				if wanted.Leaving != nil {
					same(t, id+" leaving", got.Leaving, *wanted.Leaving)
				}
			}
		}
		if gives.Anonymous != nil {
			same(t, "anonymous", states(t, presence.anonymous), gives.Anonymous)
		}
		if gives.Count != nil {
			same(t, "count", presence.count, *gives.Count)
		}
		if gives.Version != nil {
			same(t, "version", presence.version, *gives.Version)
		}
		if gives.Mode != nil {
			same(t, "mode", presence.mode, *gives.Mode)
		}
		if gives.Asks != nil {
			same(t, "asks", len(asked(c)), *gives.Asks)
		}
	})
}

func states(t *testing.T, clients map[string]*PresentClient) map[string]any {
	all := map[string]any{}
	for id, client := range clients {
		all[id] = plain(t, client.State)
	}
	return all
}

func TestGapVectors(t *testing.T) {
	vectors(t, "gaps", func(t *testing.T, one struct {
		Steps []struct {
			Reply   json.RawMessage
			Message json.RawMessage
			Gap     bool
			Restart bool
			Then    string
			Since   *Position
		}
		Position *Position
	}) {
		c := running(t, Options{})
		channel := c.Channel("game#1")
		delivered := make(chan Message, 64)
		channel.OnMessage(func(message Message) { delivered <- message })
		for number, step := range one.Steps {
			switch {
			case len(step.Reply) > 0:
				channel.healing = false
				if err := channel.granted(step.Reply); err != nil {
					t.Fatal(err)
				}
			case step.Gap:
				channel.takeGap(Gap{Channel: "game#1"})
			case step.Restart:
				channel.restore()
				checkSince(t, asked(c), step.Since)
			default:
				channel.take(Message{Channel: "game#1", Data: json.RawMessage("1"), Position: readPosition(step.Message)}, false)
				commands := asked(c)
				switch step.Then {
				case "deliver":
					<-delivered
				case "heal":
					checkSince(t, commands, step.Since)
				}
				if step.Then != "heal" && len(commands) > 0 {
					t.Errorf("step %d asks %v", number, commands)
				}
				if len(delivered) > 0 {
					t.Errorf("step %d delivers too much", number)
				}
			}
		}
		same(t, "position", channel.Position(), one.Position)
	})
}

func checkSince(t *testing.T, commands []map[string]any, since *Position) {
	t.Helper()
	if len(commands) != 1 {
		t.Fatalf("the commands are %v", commands)
	}
	same(t, "since", commands[0]["since"], plain(t, since))
}
