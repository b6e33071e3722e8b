// The transports. An object is used for one connection; it ends with LinkLost, LinkRefused (another transport may work) or an error of
// the server.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Net;
using System.Net.Http;
using System.Net.Sockets;
using System.Net.WebSockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>What a link needs to know.</summary>
    internal sealed class Access
    {
        internal Address Address;
        internal string Token, User;
        internal bool Statuses;
        internal Ticket Ticket;
        /// <summary>How long opening may take, up to the reply to hello.</summary>
        internal TimeSpan OpenTimeout;
        /// <summary>The number of the last event; it acknowledges a poll.</summary>
        internal Func<long> Seq;

        /// <summary>Without secrets: URLs end up in the logs of proxies.</summary>
        internal string Query => User != null && Token == null ? "user=" + Uri.EscapeDataString(User) : "";

        internal Dictionary<string, object> Hello()
        {
            var hello = new Dictionary<string, object> { { "op", "hello" } };
            if (Ticket.Session != null)
            {
                hello["session"] = Ticket.Session;
                hello["seq"] = Ticket.Seq;
            }
            if (Statuses) hello["status"] = true;
            return hello;
        }
    }

    internal abstract class Link
    {
        protected const int AnswerMs = 20000, PollMs = 15000;
        // The largest message size that a server can be configured for, and its envelope.
        internal const int MostBytes = 66 << 20;
        protected readonly Access Access;

        protected int OpenMs => (int)Access.OpenTimeout.TotalMilliseconds;

        protected Link(Access access)
        {
            Access = access;
        }

        internal static Link Make(Transport transport, Access access)
        {
            switch (transport)
            {
                case Transport.WebSocket: return new WebSocketLink(access);
                case Transport.Sse: return new SseLink(access);
                default: return new PollLink(access);
            }
        }

        /// <summary>Sends hello and returns its ok.</summary>
        internal abstract Task<JsonValue> Open(CancellationToken cancel);

        /// <summary>Sends a command. Over HTTP it returns the reply, otherwise null.</summary>
        internal abstract Task<JsonValue> Send(long id, string text, CancellationToken cancel);

        /// <summary>Waits for the next frames. None at all still shows that the connection is alive.</summary>
        internal abstract Task<List<JsonValue>> Receive(CancellationToken cancel);

        internal abstract void Close();

        protected static JsonValue ReadHello(JsonValue answer)
        {
            var ok = answer["ok"];
            if (ok.Kind != JsonKind.Object) throw TavernException.FromWire(answer["error"]);
            if (ok["session"].AsString() == null) throw new LinkLost("the server sent an invalid reply to hello");
            return ok;
        }

        protected static JsonValue Parse(string text)
        {
            try
            {
                var frame = JsonValue.Parse(text);
                if (frame.Kind == JsonKind.Object) return frame;
            }
            catch (FormatException failure)
            {
                throw new LinkLost("the server sent invalid JSON", 0, false, failure);
            }
            throw new LinkLost("the server sent JSON that is not an object");
        }

        /// <summary>Runs a part that must end in time; what it throws becomes LinkLost.</summary>
        protected static async Task<T> Limited<T>(string what, int limitMs, CancellationToken cancel, Func<CancellationToken, Task<T>> part)
        {
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(cancel))
            {
                var running = part(limit.Token);
                // Some implementations ignore the token: the caller does not wait for them.
                var late = Task.Delay(limitMs, limit.Token);
                if (await Task.WhenAny(running, late).ConfigureAwait(false) != running)
                {
                    limit.Cancel();
                    _ = running.ContinueWith(ignored => ignored.Exception, TaskScheduler.Default);
                    cancel.ThrowIfCancellationRequested();
                    throw new LinkLost(what + ": no answer in time");
                }
                limit.Cancel();
                try
                {
                    return await running.ConfigureAwait(false);
                }
                catch (Exception failure) when (IsIo(failure))
                {
                    cancel.ThrowIfCancellationRequested();
                    throw new LinkLost($"{what}: {Deepest(failure).Message}", 0, IsUnsent(failure), failure);
                }
            }
        }

        protected static bool IsIo(Exception failure) =>
            failure is IOException || failure is HttpRequestException || failure is WebException || failure is SocketException ||
            failure is WebSocketException || failure is OperationCanceledException || failure is ObjectDisposedException || failure is InvalidOperationException;

        /// <summary>Whether no connection was made, so that nothing can have been received.</summary>
        protected static bool IsUnsent(Exception failure)
        {
            for (var cause = failure; cause != null; cause = cause.InnerException)
            {
                if (cause is SocketException socket)
                    return socket.SocketErrorCode == SocketError.ConnectionRefused || socket.SocketErrorCode == SocketError.HostNotFound;
                if (cause is WebException web && (web.Status == WebExceptionStatus.ConnectFailure || web.Status == WebExceptionStatus.NameResolutionFailure))
                    return true;
            }
            return false;
        }

        protected static Exception Deepest(Exception failure)
        {
            while (failure.InnerException != null) failure = failure.InnerException;
            return failure;
        }

        /// <summary>An unexpected answer: an error of the server, or of a proxy in between.</summary>
        protected static Exception RefusalOf(int status, string body)
        {
            try
            {
                var error = JsonValue.Parse(body)["error"];
                if (error.Kind == JsonKind.Object) return TavernException.FromWire(error);
            }
            catch (FormatException)
            {
                // Not from Tavern.
            }
            if (status >= 500) return new LinkLost($"HTTP status {status}");
            return new LinkRefused($"HTTP status {status}");
        }
    }

    internal sealed class WebSocketLink : Link
    {
        readonly ClientWebSocket socket = new ClientWebSocket();
        readonly byte[] piece = new byte[16 * 1024];

        internal WebSocketLink(Access access) : base(access) { }

        internal override async Task<JsonValue> Open(CancellationToken cancel)
        {
            // Token and session secret are sent in hello, never in the URL.
            var query = Access.Query == "" ? "hello=no" : Access.Query + "&hello=no";
            var url = Access.Address.Url("ws", "/v1/connect", query);
            var began = Stopwatch.StartNew();
            try
            {
                await Limited("cannot reach " + Access.Address.Authority, OpenMs, cancel, async limit =>
                {
                    await socket.ConnectAsync(url, limit).ConfigureAwait(false);
                    return true;
                }).ConfigureAwait(false);
            }
            catch (LinkLost lost) when (Answered(lost))
            {
                throw new LinkRefused("the WebSocket handshake failed: " + Deepest(lost).Message, lost);
            }
            var hello = Access.Hello();
            hello["id"] = "hello";
            if (Access.Token != null) hello["token"] = Access.Token;
            await Send(0, JsonMapper.Write(hello), cancel).ConfigureAwait(false);
            var frames = await Limited("hello", Math.Max(0, OpenMs - (int)began.ElapsedMilliseconds), cancel, Receive).ConfigureAwait(false);
            return ReadHello(frames[0]);
        }

        /// <summary>Whether something answered, which then was not a WebSocket.</summary>
        static bool Answered(Exception failure)
        {
            for (var cause = failure; cause != null; cause = cause.InnerException)
            {
                if (cause is SocketException || cause is IOException || cause is OperationCanceledException) return false;
                if (cause is WebException web && web.Status != WebExceptionStatus.ProtocolError) return false;
            }
            return failure.InnerException != null;
        }

        internal override async Task<JsonValue> Send(long id, string text, CancellationToken cancel)
        {
            var bytes = new ArraySegment<byte>(Encoding.UTF8.GetBytes(text));
            await Limited("send", AnswerMs, cancel, async limit =>
            {
                await socket.SendAsync(bytes, WebSocketMessageType.Text, true, limit).ConfigureAwait(false);
                return true;
            }).ConfigureAwait(false);
            return null;
        }

        internal override async Task<List<JsonValue>> Receive(CancellationToken cancel)
        {
            try
            {
                var message = await Message(cancel).ConfigureAwait(false);
                return new List<JsonValue> { Parse(message) };
            }
            catch (Exception failure) when (IsIo(failure))
            {
                cancel.ThrowIfCancellationRequested();
                // Some implementations throw when the server closes, and keep its code.
                var code = (int)(socket.CloseStatus ?? 0);
                throw new LinkLost("the connection has ended: " + Deepest(failure).Message, code, false, failure);
            }
        }

        async Task<string> Message(CancellationToken cancel)
        {
            var whole = new MemoryStream();
            while (true)
            {
                var result = await socket.ReceiveAsync(new ArraySegment<byte>(piece), cancel).ConfigureAwait(false);
                if (result.MessageType == WebSocketMessageType.Close)
                    throw new LinkLost($"closed: {(int?)result.CloseStatus} {result.CloseStatusDescription}", (int)(result.CloseStatus ?? 0));
                whole.Write(piece, 0, result.Count);
                if (whole.Length > MostBytes) throw new LinkLost("the server sent a frame that is too large");
                if (result.EndOfMessage) return Encoding.UTF8.GetString(whole.GetBuffer(), 0, (int)whole.Length);
            }
        }

        internal override void Close()
        {
            try
            {
                socket.Abort();
                socket.Dispose();
            }
            catch (Exception failure) when (IsIo(failure) || failure is NullReferenceException)
            {
                // It was never connected, or is closed.
            }
        }
    }

    /// <summary>What SSE and long-poll share: commands are sent one request at a time, which keeps their order.</summary>
    internal abstract class HttpLink : Link
    {
        protected readonly HttpClient Http;
        protected string Session;

        protected HttpLink(Access access) : base(access)
        {
            Session = access.Ticket.Session;
            // A redirect would carry the token to another address.
            Http = new HttpClient(new HttpClientHandler { AllowAutoRedirect = false, UseCookies = false }) { Timeout = Timeout.InfiniteTimeSpan };
        }

        protected HttpRequestMessage Request(HttpMethod method, string path)
        {
            var request = new HttpRequestMessage(method, Access.Address.Url("http", path, Access.Query));
            if (Access.Token != null) request.Headers.TryAddWithoutValidation("Authorization", "Bearer " + Access.Token);
            return request;
        }

        internal override async Task<JsonValue> Send(long id, string text, CancellationToken cancel)
        {
            var session = new StringBuilder("{\"session\":");
            JsonMapper.WriteString(session, Session);
            return await Post("/v1/command", $"{session},{text.Substring(1)}", AnswerMs, cancel).ConfigureAwait(false);
        }

        protected Task<JsonValue> Post(string path, string body, int limitMs, CancellationToken cancel) =>
            Limited("no answer of " + Access.Address.Authority, limitMs, cancel, async limit =>
            {
                using (var request = Request(HttpMethod.Post, path))
                {
                    request.Content = new ByteArrayContent(Encoding.UTF8.GetBytes(body));
                    request.Content.Headers.TryAddWithoutValidation("Content-Type", "application/json");
                    using (var answer = await Http.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, limit).ConfigureAwait(false))
                    {
                        var text = await Body(answer, limit).ConfigureAwait(false);
                        try
                        {
                            return Parse(text);
                        }
                        catch (LinkLost)
                        {
                            throw RefusalOf((int)answer.StatusCode, "");
                        }
                    }
                }
            });

        protected static async Task<string> Body(HttpResponseMessage answer, CancellationToken cancel)
        {
            var whole = new MemoryStream();
            var piece = new byte[16 * 1024];
            using (var stream = await answer.Content.ReadAsStreamAsync().ConfigureAwait(false))
            {
                while (true)
                {
                    var count = await stream.ReadAsync(piece, 0, piece.Length, cancel).ConfigureAwait(false);
                    if (count == 0) return Encoding.UTF8.GetString(whole.GetBuffer(), 0, (int)whole.Length);
                    whole.Write(piece, 0, count);
                    if (whole.Length > MostBytes) throw new LinkLost("the answer is too large");
                }
            }
        }

        internal override void Close() => Http.Dispose();
    }

    internal sealed class SseLink : HttpLink
    {
        readonly byte[] piece = new byte[16 * 1024];
        readonly MemoryStream line = new MemoryStream();
        readonly StringBuilder data = new StringBuilder();
        List<JsonValue> ahead;
        HttpResponseMessage response;
        Stream stream;

        internal SseLink(Access access) : base(access) { }

        internal override async Task<JsonValue> Open(CancellationToken cancel)
        {
            var request = Request(HttpMethod.Get, "/v1/stream");
            request.Headers.TryAddWithoutValidation("Accept", "text/event-stream");
            if (Session != null)
            {
                request.Headers.TryAddWithoutValidation("Tavern-Session", Session);
                request.Headers.TryAddWithoutValidation("Last-Event-ID", Access.Ticket.Seq.ToString(System.Globalization.CultureInfo.InvariantCulture));
            }
            var frames = await Limited("cannot reach " + Access.Address.Authority, OpenMs, cancel, async limit =>
            {
                response = await Http.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, limit).ConfigureAwait(false);
                if (response.StatusCode != HttpStatusCode.OK)
                    throw RefusalOf((int)response.StatusCode, await Body(response, limit).ConfigureAwait(false));
                stream = await response.Content.ReadAsStreamAsync().ConfigureAwait(false);
                List<JsonValue> first;
                do first = await Receive(limit).ConfigureAwait(false);
                while (first.Count == 0);
                return first;
            }).ConfigureAwait(false);
            var hello = ReadHello(frames[0]);
            Session = hello["session"].AsString();
            frames.RemoveAt(0);
            ahead = frames;
            if (Access.Statuses)
            {
                var asked = new Dictionary<string, object> { { "op", "hello" }, { "session", Session }, { "status", true } };
                await Post("/v1/command", JsonMapper.Write(asked), AnswerMs, cancel).ConfigureAwait(false);
            }
            return hello;
        }

        internal override async Task<List<JsonValue>> Receive(CancellationToken cancel)
        {
            if (ahead != null && ahead.Count > 0)
            {
                var early = ahead;
                ahead = null;
                return early;
            }
            int count;
            try
            {
                count = await stream.ReadAsync(piece, 0, piece.Length, cancel).ConfigureAwait(false);
            }
            catch (Exception failure) when (IsIo(failure) || failure is NullReferenceException)
            {
                throw new LinkLost("the stream has ended: " + Deepest(failure).Message, 0, false, failure);
            }
            if (count == 0) throw new LinkLost("the stream has ended");
            var frames = new List<JsonValue>();
            for (var at = 0; at < count; at++)
            {
                if (piece[at] != '\n') line.WriteByte(piece[at]);
                else TakeLine(frames);
                if (line.Length + data.Length > MostBytes) throw new LinkLost("an event is too large");
            }
            return frames;
        }

        void TakeLine(List<JsonValue> frames)
        {
            var text = Encoding.UTF8.GetString(line.GetBuffer(), 0, (int)line.Length).TrimEnd('\r');
            line.SetLength(0);
            if (text.StartsWith("data:", StringComparison.Ordinal))
            {
                if (data.Length > 0) data.Append('\n');
                data.Append(text, text.Length > 5 && text[5] == ' ' ? 6 : 5, text.Length - (text.Length > 5 && text[5] == ' ' ? 6 : 5));
            }
            else if (text == "" && data.Length > 0)
            {
                frames.Add(Parse(data.ToString()));
                data.Clear();
            }
        }

        internal override void Close()
        {
            try
            {
                response?.Dispose();
                base.Close();
            }
            catch (Exception failure) when (IsIo(failure))
            {
                // It is closed.
            }
        }
    }

    internal sealed class PollLink : HttpLink
    {
        internal PollLink(Access access) : base(access) { }

        internal override async Task<JsonValue> Open(CancellationToken cancel)
        {
            var hello = ReadHello(await Post("/v1/command", JsonMapper.Write(Access.Hello()), OpenMs, cancel).ConfigureAwait(false));
            Session = hello["session"].AsString();
            return hello;
        }

        internal override async Task<List<JsonValue>> Receive(CancellationToken cancel)
        {
            // The cursor acknowledges everything before it.
            var asked = new Dictionary<string, object> { { "session", Session }, { "cursor", Access.Seq() }, { "timeout_ms", PollMs } };
            var answer = await Post("/v1/poll", JsonMapper.Write(asked), PollMs + PollMs / 10 + AnswerMs, cancel).ConfigureAwait(false);
            if (answer.Has("error"))
            {
                var refused = TavernException.FromWire(answer["error"]);
                throw new LinkLost(refused.Message, refused.Code == "unauthenticated" ? Decisions.TokenExpired : 0);
            }
            if (answer["superseded"].AsBool()) throw new LinkLost("superseded", Decisions.Superseded);
            if (answer["reset"].AsBool()) throw new LinkLost("the server has reset this session");
            var frames = new List<JsonValue>();
            var hasGap = false;
            foreach (var one in answer["events"].Items)
            {
                if (one.Kind != JsonKind.Object) throw new LinkLost("the server sent an event that is not an object");
                hasGap |= one["event"].AsString() == "gap";
                frames.Add(one);
            }
            var gap = answer["gap"];
            if (!gap.IsNull && (gap.Kind != JsonKind.Bool || gap.AsBool()) && !hasGap)
                frames.Insert(0, JsonValue.From(new Dictionary<string, object> { { "event", "gap" } }));
            if (answer.Has("party")) frames.Add(JsonValue.From(new Dictionary<string, object> { { "party", answer["party"] } }));
            return frames;
        }
    }
}
