package tavern

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestBackendEscapesPathsAndReadsErrors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		switch request.URL.EscapedPath() {
		case "/v1/channels/game%231%2Fx/messages":
			_, _ = out.Write([]byte(`{"receivers":2,"epoch":1,"offset":5}`))
		case "/v1/broadcast":
			_, _ = out.Write([]byte(`{"results":[{"channel":"a","receivers":1},{"channel":"b","error":{"code":"not_allowed","message":"no"}}]}`))
		case "/v1/users/ann/ban":
			out.WriteHeader(http.StatusForbidden)
			_, _ = out.Write([]byte(`{"error":{"code":"not_allowed","message":"no"}}`))
		default:
			out.WriteHeader(http.StatusBadGateway)
			_, _ = out.Write([]byte(`<html>`))
		}
	}))
	defer server.Close()
	backend, err := NewBackend(server.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	published, err := backend.Publish(ctx, "game#1/x", 1)
	if err != nil || published.Receivers != 2 || published.Position == nil || published.Position.Offset != 5 {
		t.Errorf("%v, %v", published, err)
	}
	results, err := backend.Broadcast(ctx, []string{"a", "b"}, 1)
	if err != nil || len(results) != 2 || results[1].Error == nil || results[1].Error.Code != "not_allowed" {
		t.Errorf("%v, %v", results, err)
	}
	same(t, "refusal", CodeOf(backend.Unban(ctx, "ann")), "not_allowed")
	same(t, "no Tavern server", CodeOf(backend.SendToInbox(ctx, "ann", 1)), CodeUnexpectedAnswer)
	server.Close()
	same(t, "no server", CodeOf(backend.Unban(ctx, "ann")), CodeUnreachable)
}

func TestASignedTokenHasItsClaims(t *testing.T) {
	token, err := SignToken("secret", UserToken{User: "ann", Name: "Ann", TTL: time.Minute, Allow: map[string][]string{"game#*": {"join"}}})
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var read map[string]any
	if err := json.Unmarshal(claims, &read); err != nil {
		t.Fatal(err)
	}
	same(t, "sub", read["sub"], "ann")
	same(t, "allow", read["allow"], map[string]any{"game#*": []any{"join"}})
	if left, known := remaining(token); !known || left > time.Minute || left < 50*time.Second {
		t.Errorf("%v is left", left)
	}
	same(t, "signature", parts[2], base64.RawURLEncoding.EncodeToString(sign([]byte("secret"), parts[0]+"."+parts[1])))
}

// The example of the Standard Webhooks specification.
func TestAWebhookIsVerified(t *testing.T) {
	const secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	now := time.Unix(1614265330, 0)
	same(t, "valid", verifyWebhook(secret, header, []byte(body), now), true)
	same(t, "another body", verifyWebhook(secret, header, []byte(`{}`), now), false)
	same(t, "too old", verifyWebhook(secret, header, []byte(body), now.Add(6*time.Minute)), false)
	same(t, "too new", verifyWebhook(secret, header, []byte(body), now.Add(-6*time.Minute)), false)
	same(t, "another secret", verifyWebhook("whsec_AAAA", header, []byte(body), now), false)
	header.Set("webhook-signature", "")
	same(t, "unsigned", verifyWebhook(secret, header, []byte(body), now), false)
}
