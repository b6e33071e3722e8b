using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Net.Http;
using System.Security.Cryptography;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>The server API with an API key, for services. It has no session.</summary>
    public sealed class Backend : IDisposable
    {
        const int RequestMs = 30000;
        // How far the clocks of sender and receiver of a webhook may differ.
        const long WebhookToleranceS = 300;
        readonly Address address;
        readonly string key;
        readonly HttpClient http = new HttpClient(new HttpClientHandler { AllowAutoRedirect = false, UseCookies = false }) { Timeout = Timeout.InfiniteTimeSpan };

        public Backend(string url, string key)
        {
            address = new Address(url);
            this.key = key ?? throw new ArgumentNullException(nameof(key));
        }

        /// <summary>Publishes one message.</summary>
        public async Task<Published> PublishAsync(string channel, object data, CancellationToken cancel = default(CancellationToken)) =>
            Published.FromWire(await Post(new { data = data ?? JsonValue.Null }, cancel, "channels", channel, "messages").ConfigureAwait(false));

        /// <summary>Publishes the same data to several channels; gives a result for each.</summary>
        public async Task<IReadOnlyList<JsonValue>> BroadcastAsync(IEnumerable<string> channels, object data, CancellationToken cancel = default(CancellationToken)) =>
            (await Post(new { channels = channels.ToList(), data = data ?? JsonValue.Null }, cancel, "broadcast").ConfigureAwait(false))["results"].Items;

        /// <summary>Sends an inbox message to a user.</summary>
        public Task SendToInboxAsync(string user, object data, CancellationToken cancel = default(CancellationToken)) =>
            Post(new { data = data ?? JsonValue.Null }, cancel, "users", user, "messages");

        /// <summary>A page of who is present in a channel.</summary>
        public Task<JsonValue> WhoAsync(string channel, string after = null, CancellationToken cancel = default(CancellationToken)) =>
            CallAsync("GET", new[] { "channels", channel, "presence" }, after == null ? "" : "after=" + Uri.EscapeDataString(after), null, cancel);

        /// <summary>Ends the sessions of a user.</summary>
        public Task DisconnectAsync(string user, string reason = null, CancellationToken cancel = default(CancellationToken)) =>
            Post(new Dictionary<string, object> { { "reason", reason ?? "" } }, cancel, "users", user, "disconnect");

        /// <summary>Lets a user open no session, until then or until UnbanAsync.</summary>
        public Task BanAsync(string user, string reason = "", DateTimeOffset? until = null, CancellationToken cancel = default(CancellationToken))
        {
            var body = new Dictionary<string, object> { { "reason", reason } };
            if (until != null) body["until"] = until.Value.ToUnixTimeMilliseconds();
            return CallAsync("PUT", new[] { "users", user, "ban" }, "", body, cancel);
        }

        /// <summary>Lifts the ban of a user.</summary>
        public Task UnbanAsync(string user, CancellationToken cancel = default(CancellationToken)) => CallAsync("DELETE", new[] { "users", user, "ban" }, "", null, cancel);

        /// <summary>Publishes events to a topic: objects with type, and id?, url? and data?. All or none; when it returns they are stored.</summary>
        public Task<JsonValue> PublishEventsAsync(string topic, IEnumerable<object> events, CancellationToken cancel = default(CancellationToken)) =>
            Post(events.ToList(), cancel, "topics", topic, "events");

        /// <summary>The events of a subscription after this number; acknowledges those before. Without new events it waits, at most this long.</summary>
        public async Task<IReadOnlyList<JsonValue>> PullAsync(string subscription, long after, TimeSpan wait, CancellationToken cancel = default(CancellationToken))
        {
            var query = string.Format(CultureInfo.InvariantCulture, "after={0}&wait_ms={1}", after, (long)wait.TotalMilliseconds);
            var path = new[] { "subscriptions", subscription, "events" };
            return (await Call("GET", path, query, null, RequestMs + (int)wait.TotalMilliseconds, cancel).ConfigureAwait(false))["events"].Items;
        }

        /// <summary>Makes any request of the server API: /v1/ and the segments of the path, which are escaped.</summary>
        public Task<JsonValue> CallAsync(string method, IEnumerable<string> path, string query = "", object body = null, CancellationToken cancel = default(CancellationToken)) =>
            Call(method, path, query, body, RequestMs, cancel);

        Task<JsonValue> Post(object body, CancellationToken cancel, params string[] path) => Call("POST", path, "", body, RequestMs, cancel);

        async Task<JsonValue> Call(string method, IEnumerable<string> path, string query, object body, int limitMs, CancellationToken cancel)
        {
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(cancel))
            using (var request = new HttpRequestMessage(new HttpMethod(method), address.Url("http", "/v1/" + string.Join("/", path.Select(Uri.EscapeDataString)), query)))
            {
                limit.CancelAfter(limitMs);
                request.Headers.TryAddWithoutValidation("Authorization", "Bearer " + key);
                if (body != null) request.Content = new StringContent(JsonMapper.Write(body), Encoding.UTF8, "application/json");
                string text;
                int status;
                try
                {
                    using (var answer = await http.SendAsync(request, limit.Token).ConfigureAwait(false))
                    {
                        status = (int)answer.StatusCode;
                        text = await answer.Content.ReadAsStringAsync().ConfigureAwait(false);
                    }
                }
                catch (Exception failure) when (failure is HttpRequestException || failure is OperationCanceledException || failure is System.IO.IOException || failure is System.Net.WebException)
                {
                    cancel.ThrowIfCancellationRequested();
                    throw new TavernException(ErrorCode.Unreachable, failure.Message, failure);
                }
                JsonValue read;
                try
                {
                    read = text == "" ? JsonValue.Null : JsonValue.Parse(text);
                }
                catch (FormatException failure)
                {
                    throw new TavernException(ErrorCode.UnexpectedAnswer, $"HTTP status {status}; is this a Tavern server?", failure);
                }
                if (status < 300) return read;
                if (read["error"].Kind == JsonKind.Object) throw TavernException.FromWire(read["error"]);
                throw new TavernException(ErrorCode.UnexpectedAnswer, $"HTTP status {status}; is this a Tavern server?");
            }
        }

        public void Dispose() => http.Dispose();

        /// <summary>A token for a user, signed with the secret of the server (HS256). Only for backends: the secret must never be in a game. allow: the verbs
        /// per channel pattern, for example {"game#*", ["subscribe", "publish"]}.</summary>
        public static string SignToken(string secret, string user, TimeSpan? validFor = null, IDictionary<string, string[]> allow = null, string name = null)
        {
            var ends = DateTimeOffset.UtcNow.Add(validFor ?? TimeSpan.FromHours(1)).ToUnixTimeSeconds();
            var claims = new Dictionary<string, object> { { "sub", user }, { "exp", ends } };
            if (allow != null) claims["allow"] = allow;
            if (name != null) claims["name"] = name;
            var text = Part(Encoding.UTF8.GetBytes("{\"alg\":\"HS256\",\"typ\":\"JWT\"}")) + "." + Part(Encoding.UTF8.GetBytes(JsonMapper.Write(claims)));
            return text + "." + Part(Sign(Encoding.UTF8.GetBytes(secret), text));
        }

        /// <summary>Whether a webhook is signed with this secret ("whsec_…") and is not too old. The values are those of the headers webhook-id,
        /// webhook-timestamp and webhook-signature; the body is what was received, unchanged.</summary>
        public static bool VerifyWebhook(string secret, string id, string timestamp, string signatures, string body) =>
            VerifyWebhook(secret, id, timestamp, signatures, body, DateTimeOffset.UtcNow.ToUnixTimeSeconds());

        internal static bool VerifyWebhook(string secret, string id, string timestamp, string signatures, string body, long nowS)
        {
            if (!long.TryParse(timestamp, NumberStyles.None, CultureInfo.InvariantCulture, out var sent) || Math.Abs(nowS - sent) > WebhookToleranceS) return false;
            byte[] signKey;
            try
            {
                signKey = Convert.FromBase64String(secret.StartsWith("whsec_", StringComparison.Ordinal) ? secret.Substring(6) : secret);
            }
            catch (FormatException)
            {
                return false;
            }
            var expected = "v1," + Convert.ToBase64String(Sign(signKey, $"{id}.{timestamp}.{body}"));
            var valid = false;
            foreach (var one in (signatures ?? "").Split(' ')) valid |= SameInConstantTime(one, expected);
            return valid && signKey.Length > 0;
        }

        static byte[] Sign(byte[] secret, string text)
        {
            using (var mac = new HMACSHA256(secret)) return mac.ComputeHash(Encoding.UTF8.GetBytes(text));
        }

        static bool SameInConstantTime(string one, string other)
        {
            var difference = one.Length ^ other.Length;
            for (var at = 0; at < one.Length && at < other.Length; at++) difference |= one[at] ^ other[at];
            return difference == 0;
        }

        static string Part(byte[] content) => Convert.ToBase64String(content).TrimEnd('=').Replace('+', '-').Replace('/', '_');
    }
}
