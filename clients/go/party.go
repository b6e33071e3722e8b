package tavern

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"reflect"
)

// PartySnapshot is a party as its members see it. The first member leads.
type PartySnapshot struct {
	ID      int64         `json:"party_id"`
	Version int64         `json:"version"`
	Members []PartyMember `json:"members"`
	Pending []PartyInvite `json:"pending"`
	// "forming", "idle", "gathering" or "queued".
	State string `json:"state"`
	// The ticket, while the party is gathering or queued.
	GoID *int64          `json:"go_id,omitempty"`
	Data json.RawMessage `json:"data"`
}

// Leader is the id of the user who leads.
func (p *PartySnapshot) Leader() string {
	if len(p.Members) == 0 {
		return ""
	}
	return p.Members[0].User
}

// PartyMember is a member of a party.
type PartyMember struct {
	User   string  `json:"user"`
	Name   *string `json:"name"`
	Online bool    `json:"online"`
	// Milliseconds since the epoch.
	Since int64 `json:"since"`
}

// PartyInvite is an open invite.
type PartyInvite struct {
	User string `json:"user"`
	By   string `json:"by"`
	// Milliseconds since the epoch.
	ExpiresAt int64 `json:"expires_at"`
}

// PartyEvent says what happened to a party, or to an invite. JSON has all members.
type PartyEvent struct {
	Cmd     string `json:"cmd"`
	PartyID int64  `json:"party_id"`
	Version int64  `json:"version"`
	// Milliseconds since the epoch.
	TS int64 `json:"ts"`
	// The display name and the id of the user whom the event is about.
	User      string          `json:"user"`
	UserID    string          `json:"uid"`
	Invitee   string          `json:"invitee"`
	ExpiresAt int64           `json:"expires_at"`
	Reason    string          `json:"reason"`
	GoID      *int64          `json:"go_id"`
	State     string          `json:"state"`
	Data      json.RawMessage `json:"data"`
	JSON      json.RawMessage `json:"-"`
}

// Party is the party of the user: its commands, and a snapshot that party events keep up to date.
type Party struct {
	client  *Client
	current *PartySnapshot
	changes listeners[*PartySnapshot]
	events  listeners[PartyEvent]
	says    listeners[Message]
	asking  bool
}

// Current is the party, or nil. It must not be changed.
func (p *Party) Current() *PartySnapshot { defer p.client.lock()(); return p.current }

// OnChange is called with the party after each change; nil: the user is in none any more.
func (p *Party) OnChange(call func(*PartySnapshot)) (remove func()) {
	return on(p.client, &p.changes, call)
}

// OnEvent is called with each party event.
func (p *Party) OnEvent(call func(PartyEvent)) (remove func()) { return on(p.client, &p.events, call) }

// OnInvite is called when somebody invites the user.
func (p *Party) OnInvite(call func(PartyEvent)) (remove func()) {
	return p.OnEvent(func(event PartyEvent) {
		if event.Cmd == "invite" {
			call(event)
		}
	})
}

// OnSay is called when a member says something.
func (p *Party) OnSay(call func(Message)) (remove func()) { return on(p.client, &p.says, call) }

// Get reads the party from the server; nil: the user is in none.
func (p *Party) Get(ctx context.Context) (*PartySnapshot, error) {
	ok, err := p.Command(ctx, "get", nil)
	if err != nil {
		return nil, err
	}
	var read struct {
		Party *PartySnapshot `json:"party"`
	}
	err = decode(ok, &read)
	return read.Party, err
}

// Invite invites a user and returns the id of the party; without a party this creates one.
func (p *Party) Invite(ctx context.Context, user string) (partyID int64, err error) {
	return p.number(ctx, "invite", members{"user": user}, "party_id")
}

// CancelInvite takes an invite back.
func (p *Party) CancelInvite(ctx context.Context, user string) error {
	return p.do(ctx, "cancel_invite", members{"user": user})
}

// Accept accepts the invite of this party.
func (p *Party) Accept(ctx context.Context, partyID int64) error {
	return p.do(ctx, "accept", members{"party_id": partyID})
}

// Decline declines the invite of this party; message may be "".
func (p *Party) Decline(ctx context.Context, partyID int64, message string) error {
	return p.do(ctx, "decline", members{"party_id": partyID, "message": optional(message)})
}

// Kick removes a member; for the leader. message may be "".
func (p *Party) Kick(ctx context.Context, user, message string) error {
	return p.do(ctx, "kick", members{"user": user, "message": optional(message)})
}

// Leave leaves the party; message may be "".
func (p *Party) Leave(ctx context.Context, message string) error {
	return p.do(ctx, "leave", members{"message": optional(message)})
}

// Promote makes another member the leader.
func (p *Party) Promote(ctx context.Context, user string) error {
	return p.do(ctx, "promote", members{"user": user})
}

// Disband ends the party; for the leader. message may be "".
func (p *Party) Disband(ctx context.Context, message string) error {
	return p.do(ctx, "disband", members{"message": optional(message)})
}

// SetData replaces the data of the party, an object; for the leader.
func (p *Party) SetData(ctx context.Context, data any) error {
	return p.do(ctx, "set_data", members{"data": data})
}

// Go creates a ticket for the matchmaker and returns its id; for the leader. params may be nil.
func (p *Party) Go(ctx context.Context, params any) (goID int64, err error) {
	return p.number(ctx, "go", members{"params": params}, "go_id")
}

// CancelGo cancels the ticket.
func (p *Party) CancelGo(ctx context.Context) error { return p.do(ctx, "cancel_go", nil) }

// Ready confirms that the user is ready for this ticket.
func (p *Party) Ready(ctx context.Context, goID int64) error {
	return p.do(ctx, "ready", members{"go_id": goID})
}

// Block blocks the invites of a user.
func (p *Party) Block(ctx context.Context, user string) error {
	return p.do(ctx, "block", members{"user": user})
}

// Unblock allows the invites of a user again.
func (p *Party) Unblock(ctx context.Context, user string) error {
	return p.do(ctx, "unblock", members{"user": user})
}

// Say sends a message to the members. It is not sent again after a lost connection.
func (p *Party) Say(ctx context.Context, data any) error {
	encoded, err := encode(data)
	if err != nil {
		return err
	}
	return p.do(ctx, "say", members{"data": encoded})
}

// Command sends any party command and returns its reply.
func (p *Party) Command(ctx context.Context, cmd string, given map[string]any) (json.RawMessage, error) {
	sent := members{}
	for name, value := range given {
		sent[name] = value
	}
	if _, has := sent["rid"]; !has && cmd != "get" && cmd != "say" {
		// With a request id the server executes a repeated command once.
		id := make([]byte, 16)
		if _, err := rand.Read(id); err != nil {
			return nil, err
		}
		sent["rid"] = hex.EncodeToString(id)
	}
	ok, err := p.client.session.ask(ctx, "party."+cmd, sent, func(ok json.RawMessage) error {
		var read struct {
			Party json.RawMessage `json:"party"`
		}
		if err := json.Unmarshal(ok, &read); err != nil {
			return err
		}
		if len(read.Party) > 0 {
			p.setSnapshotJSON(read.Party)
		} else if cmd != "say" && cmd != "block" && cmd != "unblock" {
			p.refresh()
		}
		return nil
	})
	if refused, is := err.(*Error); is && refused.Party != nil {
		defer p.client.lock()()
		p.setSnapshot(refused.Party)
	}
	return ok, err
}

func (p *Party) do(ctx context.Context, cmd string, given members) error {
	_, err := p.Command(ctx, cmd, given)
	return err
}

func (p *Party) number(ctx context.Context, cmd string, given members, name string) (int64, error) {
	ok, err := p.Command(ctx, cmd, given)
	if err != nil {
		return 0, err
	}
	var read map[string]json.RawMessage
	var number int64
	if err := decode(ok, &read); err != nil {
		return 0, err
	}
	err = decode(read[name], &number)
	return number, err
}

func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// ---- called under the lock

func (p *Party) setSnapshotJSON(raw json.RawMessage) {
	if len(raw) == 0 {
		// The store does not answer: the party is unknown, not gone.
		return
	}
	var party *PartySnapshot
	if json.Unmarshal(raw, &party) == nil {
		p.setSnapshot(party)
	}
}

func (p *Party) setSnapshot(party *PartySnapshot) {
	old := p.current
	if party != nil && old != nil && party.ID == old.ID && party.Version < old.Version {
		// Older than the events that have arrived since.
		return
	}
	p.current = party
	p.changed(old)
}

func (p *Party) changed(old *PartySnapshot) {
	if !reflect.DeepEqual(old, p.current) {
		p.changes.emit(p.client.dispatcher, true, p.current)
	}
}

func (p *Party) takeJSON(raw []byte, me string) {
	var event PartyEvent
	if json.Unmarshal(raw, &event) != nil {
		p.refresh()
		return
	}
	event.JSON = raw
	old := p.current
	after, complete := foldParty(old, event, me)
	p.current = after
	if !complete {
		p.refresh()
	}
	p.events.emit(p.client.dispatcher, true, event)
	p.changed(old)
}

// refresh reads the party again; while it is being read, further calls do nothing.
func (p *Party) refresh() {
	if p.asking {
		return
	}
	sent, err := p.client.session.begin("party.get", nil, true, func(ok json.RawMessage) error {
		var read struct {
			Party json.RawMessage `json:"party"`
		}
		if err := json.Unmarshal(ok, &read); err != nil {
			return err
		}
		p.setSnapshotJSON(read.Party)
		return nil
	})
	if err == nil {
		p.asking = true
		sent.onEnd = func(*Error) { p.asking = false }
	}
}

// foldParty is the party after an event, and whether that says everything: otherwise the party must be read again.
func foldParty(party *PartySnapshot, event PartyEvent, me string) (*PartySnapshot, bool) {
	if party == nil || event.PartyID != party.ID {
		// Events of another party do not change this one.
		switch event.Cmd {
		case "invite", "invite_cancel", "kick", "disband", "decline", "leave":
			return party, true
		}
		return party, false
	}
	if event.Version <= party.Version {
		return party, true
	}
	if event.Cmd == "kick" || event.Cmd == "disband" || (event.Cmd == "leave" && me != "" && event.UserID == me) {
		return nil, true
	}
	after := *party
	after.Version = event.Version
	after.Members = append([]PartyMember{}, party.Members...)
	after.Pending = append([]PartyInvite{}, party.Pending...)
	if event.Version != party.Version+1 || !after.apply(event) {
		return party, false
	}
	if after.State == "forming" || after.State == "idle" {
		// Without a ticket, the state depends on the number of members.
		after.State = "idle"
		if len(after.Members) < 2 {
			after.State = "forming"
		}
	}
	return &after, true
}

// apply changes the party; false: the event does not say enough.
func (p *PartySnapshot) apply(event PartyEvent) bool {
	switch event.Cmd {
	case "join", "accept":
		joined := PartyMember{User: event.UserID, Online: true, Since: event.TS}
		// For a user without a display name the server sends the id.
		if event.User != event.UserID {
			name := event.User
			joined.Name = &name
		}
		p.Members = append(p.Members, joined)
		p.dropInvite(event.UserID)
	case "invited":
		p.Pending = append(p.Pending, PartyInvite{event.Invitee, event.UserID, event.ExpiresAt})
	case "decline", "uninvited":
		p.dropInvite(event.UserID)
	case "leave":
		kept := p.Members[:0]
		for _, one := range p.Members {
			if one.User != event.UserID {
				kept = append(kept, one)
			}
		}
		p.Members = kept
	case "leader":
		for at, one := range p.Members {
			if one.User == event.UserID {
				copy(p.Members[1:at+1], p.Members[:at])
				p.Members[0] = one
				return true
			}
		}
		return false
	case "data":
		p.Data = event.Data
	case "online", "offline":
		for at := range p.Members {
			if p.Members[at].User == event.UserID {
				p.Members[at].Online = event.Cmd == "online"
				return true
			}
		}
		return false
	case "party_go", "ready":
		if event.GoID == nil || event.State == "" {
			return false
		}
		p.GoID, p.State = event.GoID, event.State
	case "party_matched", "go_failed", "go_cancel":
		p.GoID, p.State = nil, "idle"
	default:
		// An event of a newer server.
		return false
	}
	return true
}

func (p *PartySnapshot) dropInvite(user string) {
	kept := p.Pending[:0]
	for _, one := range p.Pending {
		if one.User != user {
			kept = append(kept, one)
		}
	}
	p.Pending = kept
}
