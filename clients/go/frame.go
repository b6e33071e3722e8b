package tavern

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// frame is one JSON object of the server: a reply, an event, or the party in the answer to a poll.
type frame struct {
	ID    json.RawMessage `json:"id"`
	OK    json.RawMessage `json:"ok"`
	Error json.RawMessage `json:"error"`
	Party json.RawMessage `json:"party"`

	Seq       *int64          `json:"seq"`
	Event     string          `json:"event"`
	Channel   *string         `json:"channel"`
	Pattern   *string         `json:"pattern"`
	Data      json.RawMessage `json:"data"`
	From      json.RawMessage `json:"from"`
	To        json.RawMessage `json:"to"`
	MessageID json.RawMessage `json:"message_id"`

	// The whole object, for events with more members.
	raw []byte
}

func parseFrame(text []byte) (*frame, error) {
	read := &frame{raw: text}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, &linkLost{why: "the server sent a frame that is not a JSON object"}
	}
	if err := json.Unmarshal(text, read); err != nil {
		return nil, &linkLost{why: "the server sent an invalid frame"}
	}
	return read, nil
}

// answer is the ok of a reply, or its error.
func (f *frame) answer() (json.RawMessage, error) {
	if len(f.OK) > 0 && f.OK[0] == '{' {
		return f.OK, nil
	}
	return nil, errorFromWire(f.Error)
}

// encode writes a value as JSON, without escaping HTML.
func encode(value any) (json.RawMessage, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, &Error{Code: "bad_request", Message: fmt.Sprintf("not JSON: %v", err), cause: err}
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// members are those of a command. A nil value is left out.
type members map[string]any

func (m members) encode() (json.RawMessage, error) {
	given := make(members, len(m))
	for name, value := range m {
		if value != nil {
			given[name] = value
		}
	}
	return encode(given)
}

// commandText is the text of a command: the members with id and op before them.
func commandText(id int64, op string, encoded json.RawMessage) []byte {
	text := fmt.Sprintf(`{"id":%d,"op":%q`, id, op)
	if len(encoded) > 2 {
		text += "," + string(encoded[1:])
	} else {
		text += "}"
	}
	return []byte(text)
}
