package tavern

import (
	"context"
	"encoding/json"
)

// Me is the user of the client: follows, statuses, visibility and the inbox.
type Me struct {
	client   *Client
	statuses listeners[StatusUpdate]
	all      listeners[[]Status]
	inbox    listeners[InboxMessage]
	// The statuses of followed users, as far as they were told.
	known map[string]Status
}

// Status is what a user is doing, as far as they show it.
type Status struct {
	User       string     `json:"user"`
	Name       *string    `json:"name"`
	Online     bool       `json:"online"`
	Leaving    bool       `json:"leaving"`
	Activities []Activity `json:"activities"`
	Channels   []string   `json:"channels"`
	// Milliseconds since the epoch, if it is known.
	LastSeen *int64 `json:"last_seen"`
}

// Activity is what a user does in a channel.
type Activity struct {
	Activity string `json:"activity"`
	Channel  string `json:"channel"`
	// Milliseconds since the epoch.
	Since int64 `json:"since"`
}

// StatusUpdate says that the status of a followed user has changed.
type StatusUpdate struct {
	User   string `json:"user"`
	Status Status `json:"status"`
	// What happened in Channel, for example "disconnected" or "in_game_channel"; or "none".
	Change  string  `json:"change"`
	Channel *string `json:"channel"`
}

// InboxMessage is a message to the user. Each is delivered once to each client.
type InboxMessage struct {
	ID   int64           `json:"message_id"`
	Data json.RawMessage `json:"data"`
}

// Decode reads the data into a value, as json.Unmarshal does.
func (m InboxMessage) Decode(into any) error { return json.Unmarshal(m.Data, into) }

// Visibility is who sees the status of a user.
type Visibility string

// The values of Visibility.
const (
	Everyone         Visibility = "everyone"
	FollowersIFollow Visibility = "followers_i_follow"
	Nobody           Visibility = "nobody"
)

// OnStatus is called when the status of a followed user has changed.
func (m *Me) OnStatus(call func(StatusUpdate)) (remove func()) {
	return on(m.client, &m.statuses, call)
}

// OnStatuses is called with the statuses of all followed users when a session starts, if Options.Statuses asks for them.
func (m *Me) OnStatuses(call func([]Status)) (remove func()) { return on(m.client, &m.all, call) }

// OnInbox is called with each inbox message.
func (m *Me) OnInbox(call func(InboxMessage)) (remove func()) { return on(m.client, &m.inbox, call) }

// User is the id of the user; "": anonymous.
func (m *Me) User() string { defer m.client.lock()(); return m.user() }

// Client is the public id of this session.
func (m *Me) Client() string { defer m.client.lock()(); return m.client.session.hello.Client }

// Statuses is a copy of the statuses of followed users, by id: complete with Options.Statuses, otherwise those that have changed.
func (m *Me) Statuses() map[string]Status {
	defer m.client.lock()()
	statuses := make(map[string]Status, len(m.known))
	for user, status := range m.known {
		statuses[user] = status
	}
	return statuses
}

// Status asks for the statuses of up to 100 users, in this order.
func (m *Me) Status(ctx context.Context, users ...string) ([]Status, error) {
	ok, err := m.client.session.ask(ctx, "status", members{"users": users}, nil)
	if err != nil {
		return nil, err
	}
	var read struct {
		Statuses []Status `json:"statuses"`
	}
	err = decode(ok, &read)
	return read.Statuses, err
}

// Follow follows a user.
func (m *Me) Follow(ctx context.Context, user string) error {
	_, err := m.client.session.ask(ctx, "follow", members{"user": user}, nil)
	return err
}

// Unfollow ends that.
func (m *Me) Unfollow(ctx context.Context, user string) error {
	_, err := m.client.session.ask(ctx, "unfollow", members{"user": user}, func(json.RawMessage) error {
		m.forget(user)
		return nil
	})
	return err
}

// Following is everybody whom the user follows.
func (m *Me) Following(ctx context.Context) ([]string, error) { return m.pages(ctx, "following") }

// Followers is everybody who follows the user.
func (m *Me) Followers(ctx context.Context) ([]string, error) { return m.pages(ctx, "followers") }

func (m *Me) pages(ctx context.Context, op string) ([]string, error) {
	users := []string{}
	for after := (members{}); ; {
		ok, err := m.client.session.ask(ctx, op, after, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Users []string `json:"users"`
			Next  *string  `json:"next"`
		}
		if err := decode(ok, &page); err != nil {
			return nil, err
		}
		users = append(users, page.Users...)
		if page.Next == nil {
			return users, nil
		}
		after = members{"after": *page.Next}
	}
}

// SetVisibility chooses who sees the status of the user.
func (m *Me) SetVisibility(ctx context.Context, value Visibility) error {
	_, err := m.client.session.ask(ctx, "visibility", members{"value": string(value)}, nil)
	return err
}

// ---- called under the lock

func (m *Me) user() string {
	if user := m.client.session.hello.User; user != nil {
		return *user
	}
	return ""
}

func (m *Me) take(f *frame) {
	switch f.Event {
	case "status":
		var update StatusUpdate
		if json.Unmarshal(f.raw, &update) == nil {
			m.set(update.Status)
			m.statuses.emit(m.client.dispatcher, true, update)
		}
	case "statuses":
		var read struct {
			Statuses []Status `json:"statuses"`
		}
		if json.Unmarshal(f.raw, &read) == nil {
			m.known = nil
			for _, status := range read.Statuses {
				m.set(status)
			}
			m.all.emit(m.client.dispatcher, true, read.Statuses)
		}
	case "inbox":
		var message InboxMessage
		if json.Unmarshal(f.raw, &message) == nil {
			m.inbox.emit(m.client.dispatcher, true, message)
		}
	}
}

func (m *Me) set(status Status) {
	if m.known == nil {
		m.known = map[string]Status{}
	}
	m.known[status.User] = status
}

func (m *Me) forget(user string) { delete(m.known, user) }

// reload asks for all statuses again: changes were lost.
func (m *Me) reload() {
	if m.client.session.statuses {
		_, _ = m.client.session.begin("hello", json.RawMessage(`{"status":true}`), true, nil)
	}
}
