package tavern

import (
	"encoding/json"
	"time"
)

// The most changes that are kept while a snapshot is awaited; later ones are dropped.
const bufferedChanges = 4_096

// Members is one page of who is present.
type Members struct {
	Version int64    `json:"version"`
	Users   []Member `json:"users"`
	// All users, anonymous ones included.
	Count int `json:"count"`
	// What to give as After for the next page; nil: this is the last one.
	Next *string `json:"next,omitempty"`
}

// Member is one user in a page of Members; User is nil for anonymous ones.
type Member struct {
	User    *string        `json:"user"`
	Name    *string        `json:"name"`
	Clients []MemberClient `json:"clients"`
	Since   int64          `json:"since,omitempty"`
	Leaving bool           `json:"leaving,omitempty"`
}

// MemberClient is one session of a member.
type MemberClient struct {
	Client string          `json:"client"`
	State  json.RawMessage `json:"state"`
	Since  int64           `json:"since,omitempty"`
}

// PresentUser is one user in a presence map.
type PresentUser struct {
	User string
	Name string
	// By client id.
	Clients map[string]*PresentClient
	// Lost, and may still return.
	Leaving bool
	// Only snapshots tell it; zero otherwise.
	Since time.Time
}

// State is the state of one of the user's clients, or nil; the one that came last if a snapshot told so.
func (u PresentUser) State() json.RawMessage {
	var found *PresentClient
	for _, one := range u.Clients {
		if found == nil || one.Since.After(found.Since) || (one.Since.Equal(found.Since) && one.Client > found.Client) {
			found = one
		}
	}
	if found == nil {
		return nil
	}
	return found.State
}

// PresentClient is one session of a user in a channel.
type PresentClient struct {
	Client string
	State  json.RawMessage
	Since  time.Time
}

// Presence is the live map of who is in a channel: a snapshot, and every change since. An event that does not apply asks for a new
// snapshot and changes nothing.
type Presence struct {
	channel   *Channel
	changes   listeners[struct{}]
	version   int64
	mode      string
	count     int
	users     map[string]*PresentUser
	anonymous map[string]*PresentClient
	synced    bool
	buffered  []presenceEvent
	// A change that waits for the next event, so that the app hears of a user who comes or goes once.
	announce *time.Timer
}

// How long a change waits for the event that belongs to it.
const announceWait = 50 * time.Millisecond

// OnChange is called after each change of the map.
func (p *Presence) OnChange(call func()) (remove func()) {
	return on(p.channel.client, &p.changes, func(struct{}) { call() })
}

// Users is a copy of the users who are present, by id. Anonymous users are only counted; in large channels ("counts" mode) so is
// everybody whom this user does not follow.
func (p *Presence) Users() map[string]PresentUser {
	defer p.channel.client.lock()()
	users := make(map[string]PresentUser, len(p.users))
	for id, user := range p.users {
		copied := *user
		copied.Clients = make(map[string]*PresentClient, len(user.Clients))
		for id, client := range user.Clients {
			one := *client
			copied.Clients[id] = &one
		}
		users[id] = copied
	}
	return users
}

// User is one user who is present.
func (p *Presence) User(id string) (PresentUser, bool) {
	user, present := p.Users()[id]
	return user, present
}

// Count is the number of users, anonymous ones included.
func (p *Presence) Count() int { defer p.channel.client.lock()(); return p.count }

// Mode is "full", "coalesced" or "counts".
func (p *Presence) Mode() string { defer p.channel.client.lock()(); return p.mode }

// Version grows with each change.
func (p *Presence) Version() int64 { defer p.channel.client.lock()(); return p.version }

type presenceEvent struct {
	Event       string          `json:"event"`
	Version     int64           `json:"version"`
	FromVersion *int64          `json:"from_version"`
	Mode        string          `json:"mode"`
	User        *string         `json:"user"`
	Name        *string         `json:"name"`
	Client      *string         `json:"client"`
	State       json.RawMessage `json:"state"`
	Explicit    bool            `json:"explicit"`
	Count       int             `json:"count"`
	Joined      []presenceEntry `json:"joined"`
	Updated     []presenceEntry `json:"updated"`
	Left        []presenceEntry `json:"left"`
}

type presenceEntry struct {
	User   *string         `json:"user"`
	Client *string         `json:"client"`
	State  json.RawMessage `json:"state"`
}

// ---- called under the lock

func (p *Presence) takeJSON(raw []byte) {
	var event presenceEvent
	if json.Unmarshal(raw, &event) != nil {
		p.lose()
		return
	}
	p.take(event)
}

// load replaces the map by a snapshot.
func (p *Presence) load(members Members) {
	if p.synced && members.Version < p.version {
		// Older than the changes that have arrived since.
		return
	}
	p.version, p.count = members.Version, members.Count
	p.users, p.anonymous = map[string]*PresentUser{}, map[string]*PresentClient{}
	if members.Users == nil {
		p.mode = "counts"
	} else if p.mode == "counts" {
		p.mode = "coalesced"
	}
	for _, member := range members.Users {
		clients := map[string]*PresentClient{}
		for _, one := range member.Clients {
			clients[one.Client] = &PresentClient{one.Client, one.State, timeOf(one.Since)}
		}
		if member.User == nil {
			for id, client := range clients {
				p.anonymous[id] = client
			}
			continue
		}
		user := &PresentUser{User: *member.User, Clients: clients, Leaving: member.Leaving, Since: timeOf(member.Since)}
		if member.Name != nil {
			user.Name = *member.Name
		}
		p.users[user.User] = user
	}
	p.synced = true
	early := p.buffered
	p.buffered = nil
	p.changed()
	for _, event := range early {
		p.take(event)
	}
}

// lose marks the map as stale: it asks for a snapshot once, and keeps changes until that arrives.
func (p *Presence) lose() {
	if p.synced {
		p.synced = false
		p.channel.reload()
	}
}

func (p *Presence) changed() {
	if p.announce != nil {
		p.announce.Stop()
		p.announce = nil
	}
	p.changes.emit(p.channel.client.dispatcher, true, struct{}{})
}

// changedSoon waits for the event that belongs to this one.
func (p *Presence) changedSoon() {
	var timer *time.Timer
	timer = time.AfterFunc(announceWait, func() {
		defer p.channel.client.lock()()
		if p.announce == timer {
			p.changed()
		}
	})
	p.announce = timer
}

func (p *Presence) take(event presenceEvent) {
	if !p.synced {
		if len(p.buffered) < bufferedChanges {
			p.buffered = append(p.buffered, event)
		}
		return
	}
	if event.Event == "presence_mode" {
		p.takeMode(event)
		return
	}
	if event.Version <= p.version {
		return
	}
	before := event.Version - 1
	if event.FromVersion != nil {
		before = *event.FromVersion
	}
	// The version of an empty channel may jump.
	if before > p.version && p.count > 0 {
		p.buffered = []presenceEvent{event}
		p.lose()
		return
	}
	if event.Event == "presence" {
		p.takeDifference(event)
	} else {
		p.takeSingle(event)
	}
	p.version = event.Version
	if p.waitsForMore(event) {
		p.changedSoon()
	} else {
		p.changed()
	}
}

// waitsForMore reports whether another event about the same user follows at once.
func (p *Presence) waitsForMore(event presenceEvent) bool {
	if event.Event == "user_online" {
		return true
	}
	if event.Event != "client_offline" || !event.Explicit || event.User == nil {
		return false
	}
	user, present := p.users[*event.User]
	return present && len(user.Clients) == 0
}

func (p *Presence) takeMode(event presenceEvent) {
	if event.Version < p.version {
		return
	}
	leftCounts := p.mode == "counts" && event.Mode != "counts"
	p.mode = event.Mode
	if p.mode == "counts" {
		// Most users are not reported any more, so their departure would be missed.
		p.users, p.anonymous = map[string]*PresentUser{}, map[string]*PresentClient{}
	}
	p.changed()
	if leftCounts || event.Version > p.version {
		p.lose()
	}
}

func (p *Presence) takeSingle(event presenceEvent) {
	switch event.Event {
	case "user_online":
		p.count++
	case "user_offline":
		p.count--
	}
	if event.User == nil {
		p.takeAnonymous(event.Event, event.Client, event.State)
		return
	}
	if event.Event == "user_offline" {
		delete(p.users, *event.User)
		return
	}
	user := p.user(*event.User, false)
	if event.Event == "user_online" {
		user.Name = ""
		if event.Name != nil {
			user.Name = *event.Name
		}
		return
	}
	if event.Client == nil {
		return
	}
	switch event.Event {
	case "client_online":
		user.Leaving = false
		user.Clients[*event.Client] = &PresentClient{Client: *event.Client, State: event.State}
	case "client_updated":
		if client, known := user.Clients[*event.Client]; known {
			client.State = event.State
		}
	case "client_offline":
		delete(user.Clients, *event.Client)
		user.Leaving = len(user.Clients) == 0
	}
}

func (p *Presence) user(id string, leaving bool) *PresentUser {
	user, known := p.users[id]
	if !known {
		user = &PresentUser{User: id, Clients: map[string]*PresentClient{}, Leaving: leaving}
		p.users[id] = user
	}
	return user
}

func (p *Presence) takeAnonymous(event string, client *string, state json.RawMessage) {
	if client == nil {
		// A hidden user is only counted.
		return
	}
	switch event {
	case "client_offline":
		delete(p.anonymous, *client)
	case "client_online", "client_updated":
		p.anonymous[*client] = &PresentClient{Client: *client, State: state}
	}
}

func (p *Presence) takeDifference(event presenceEvent) {
	for _, gone := range event.Left {
		switch {
		case gone.User == nil:
			p.takeAnonymous("client_offline", gone.Client, nil)
		case gone.Client == nil:
			delete(p.users, *gone.User)
		default:
			if user, known := p.users[*gone.User]; known {
				delete(user.Clients, *gone.Client)
				user.Leaving = len(user.Clients) == 0
			}
		}
	}
	for _, entry := range append(append([]presenceEntry{}, event.Joined...), event.Updated...) {
		if entry.User == nil {
			p.takeAnonymous("client_online", entry.Client, entry.State)
			continue
		}
		user := p.user(*entry.User, entry.Client == nil)
		if entry.Client == nil {
			continue
		}
		user.Leaving = false
		if client, known := user.Clients[*entry.Client]; known {
			client.State = entry.State
		} else {
			user.Clients[*entry.Client] = &PresentClient{Client: *entry.Client, State: entry.State}
		}
	}
	p.count = event.Count
}
