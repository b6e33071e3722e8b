package tavern

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"time"
)

// Message is one message of a channel.
type Message struct {
	Channel string
	Data    json.RawMessage
	// The publisher; "" for services and anonymous users.
	User, Client string
	// Set when the published bytes are not valid text: Data is then a string of base64.
	Encoding string
	// Its place in the history of the channel, if that keeps one, and when it was stored.
	Position *Position
	At       time.Time
}

// Decode reads the data into a value, as json.Unmarshal does.
func (m Message) Decode(into any) error { return json.Unmarshal(m.Data, into) }

// Text is the data if that is a string, and its JSON otherwise.
func (m Message) Text() string {
	var text string
	if json.Unmarshal(m.Data, &text) == nil {
		return text
	}
	return string(m.Data)
}

// Bytes are the published bytes of a message with an Encoding, and the JSON of any other.
func (m Message) Bytes() []byte {
	if m.Encoding == "base64" {
		if decoded, err := base64.StdEncoding.DecodeString(m.Text()); err == nil {
			return decoded
		}
	}
	return m.Data
}

// Position is a place in the history of a channel: everything up to it is known.
type Position struct {
	Epoch  int64 `json:"epoch"`
	Offset int64 `json:"offset"`
}

// after reports whether this place comes later.
func (p Position) after(other Position) bool {
	return p.Epoch > other.Epoch || (p.Epoch == other.Epoch && p.Offset > other.Offset)
}

// readPosition finds a position in a reply or event; nil: it has none.
func readPosition(raw []byte) *Position {
	var read struct {
		Epoch  *int64 `json:"epoch"`
		Offset *int64 `json:"offset"`
	}
	if !bytes.Contains(raw, []byte(`"epoch"`)) || json.Unmarshal(raw, &read) != nil || read.Epoch == nil || read.Offset == nil {
		return nil
	}
	return &Position{*read.Epoch, *read.Offset}
}

func readMessage(f *frame) Message {
	read := Message{Data: f.Data, Position: readPosition(f.raw)}
	if f.Channel != nil {
		read.Channel = *f.Channel
	}
	read.User, read.Client = readSender(f.From)
	var rest struct {
		Encoding string `json:"encoding"`
		At       int64  `json:"at"`
	}
	if read.Position != nil || bytes.Contains(f.raw, []byte(`"encoding"`)) {
		_ = json.Unmarshal(f.raw, &rest)
		read.Encoding = rest.Encoding
		if rest.At != 0 {
			read.At = time.UnixMilli(rest.At)
		}
	}
	return read
}

func readSender(from json.RawMessage) (user, client string) {
	var sender struct {
		User   *string `json:"user"`
		Client *string `json:"client"`
	}
	if len(from) == 0 || json.Unmarshal(from, &sender) != nil {
		return "", ""
	}
	if sender.User != nil {
		user = *sender.User
	}
	if sender.Client != nil {
		client = *sender.Client
	}
	return user, client
}

// Gap says that events were dropped. Presence maps and the party are reloaded without further action.
type Gap struct {
	// What the dropped messages were about; both empty: any event, with the numbers From to To.
	Channel, Pattern string
	From, To         int64
	// How many events were dropped because the functions of the app were too slow.
	Overflow int
}

// Revoked says that a fresh token does not allow something any more. It is not restored in a new session.
type Revoked struct {
	// "subscribe", "presence" or "join".
	Verb             string
	Channel, Pattern string
}

// ServerEvent is any event as the server sent it.
type ServerEvent struct {
	Name string
	JSON json.RawMessage
}
