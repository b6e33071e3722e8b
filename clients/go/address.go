package tavern

import (
	"fmt"
	"net/url"
	"strings"
)

// address is where a server is reached. It is checked before anything is sent.
type address struct {
	secure bool
	host   string
	// What a proxy adds before /v1/…: "" or "/prefix".
	path string
}

func parseAddress(text string) (address, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return address{}, fmt.Errorf("tavern: %q is not a URL", text)
	}
	secure, known := map[string]bool{"http": false, "ws": false, "https": true, "wss": true}[strings.ToLower(parsed.Scheme)]
	switch {
	case !known:
		return address{}, fmt.Errorf("tavern: %q: the scheme must be http, https, ws or wss", text)
	case parsed.Hostname() == "":
		return address{}, fmt.Errorf("tavern: %q has no host", text)
	case parsed.RawQuery != "" || parsed.Fragment != "" || parsed.User != nil:
		// Not quoted: it may contain a password.
		return address{}, fmt.Errorf("tavern: a URL has only scheme, host, port and path; pass the token in Options")
	}
	path := strings.TrimSuffix(strings.TrimRight(parsed.EscapedPath(), "/"), "/v1/connect")
	return address{secure: secure, host: parsed.Host, path: path}, nil
}

// url is the URL of a request; scheme is "http" or "ws".
func (a address) url(scheme, path string, query url.Values) string {
	if a.secure {
		scheme += "s"
	}
	text := scheme + "://" + a.host + a.path + path
	if len(query) > 0 {
		text += "?" + query.Encode()
	}
	return text
}
