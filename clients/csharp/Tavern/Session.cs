using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>Is told what happens to a session. All methods are called under the lock of the session.</summary>
    internal interface ISessionOwner
    {
        void TakeEvent(JsonValue frame);
        void Opened(JsonValue hello, bool resumed, bool another);
        void WasReset(List<TavernException> failed);
        void Reconnecting(string why);
        void Closing(long reconnectAfterMs);
        void Ended(TavernException final);
        /// <summary>Sends the commands that restore everything in a new session.</summary>
        void Restore();
        void Error(Exception why);
    }

    /// <summary>A command that waits to be sent or answered.</summary>
    internal sealed class Command
    {
        internal readonly long Id;
        internal readonly string Op, Text;
        /// <summary>It may be sent again when its outcome is unknown.</summary>
        internal readonly bool Repeatable;
        /// <summary>Called with the ok, under the lock, before any later frame is processed.</summary>
        internal readonly Action<JsonValue> OnOk;
        /// <summary>Called once, under the lock, after the end; null: it succeeded.</summary>
        internal Action<TavernException> OnEnd;
        internal bool Sent;
        internal int Retries;
        readonly TaskCompletionSource<JsonValue> reply = new TaskCompletionSource<JsonValue>(TaskCreationOptions.RunContinuationsAsynchronously);

        internal Command(long id, string op, string text, bool repeatable, Action<JsonValue> onOk)
        {
            Id = id;
            Op = op;
            Text = text;
            Repeatable = repeatable;
            OnOk = onOk;
        }

        internal Task<JsonValue> Reply => reply.Task;

        internal bool IsEnded => reply.Task.IsCompleted;

        internal void Succeed(JsonValue ok)
        {
            if (reply.TrySetResult(ok)) OnEnd?.Invoke(null);
        }

        internal void Fail(TavernException why)
        {
            if (!reply.TrySetException(why)) return;
            // Read, so that a command nobody waits for is no unobserved exception.
            _ = reply.Task.Exception;
            OnEnd?.Invoke(why);
        }
    }

    /// <summary>One session over any number of connections: it connects, resumes, retries commands that may be repeated, and drops duplicate
    /// events. It knows nothing about channels or parties.
    /// Must hold: an event is delivered once; a command gets one result, a reply or an error, even when a part of the client fails; a superseded
    /// session never reconnects.</summary>
    internal sealed class Session
    {
        internal const int MostCommands = 16384, ByeMs = 2000, TokenMs = 20000, SteadyMs = 5000;
        const int EndMs = 1000;
        // Failures of a transport before the next is tried: one that never worked, and one that did.
        internal const int RefusalsNew = 2, RefusalsWorked = 5;
        // How long a transport stands in for the preferred one, at least: up to twice as long.
        internal const int StandInMs = 30000;

        // Guards everything below, and the state of the owner.
        internal readonly object Gate = new object();
        internal readonly Settings Settings;
        internal State State = State.Idle;
        internal Transport? Transport;
        internal JsonValue Hello = JsonValue.Null;
        /// <summary>Why the client is closed; null while it is running.</summary>
        internal TavernException WhyEnded = new TavernException(ErrorCode.Closed, "not connected");
        internal string SessionSecret;
        internal long Seq;
        /// <summary>For tests: is told each part of the client that starts.</summary>
        internal Action<string> PartStarts = part => { };

        readonly ISessionOwner owner;
        readonly Random random = new Random(Guid.NewGuid().GetHashCode());
        readonly Dictionary<long, Command> pending = new Dictionary<long, Command>();
        readonly HashSet<Transport> worked = new HashSet<Transport>();
        readonly SemaphoreSlim wake = new SemaphoreSlim(0);
        List<Command> outbox = new List<Command>();
        Restoring restoring;
        string token, lastFailure = "no attempt has finished";
        // Closed, and not only suspended; the token must be replaced; it has just been replaced; the app closes the client.
        bool over = true, stale, fresh, leaving, had;
        long ids, acked, attempts;
        long? closingMs;
        int addressAt, transportAt, refusals;
        readonly Stopwatch clock = Stopwatch.StartNew();
        long heardAt;
        TaskCompletionSource<bool> first;
        CancellationTokenSource running;
        Task run = Task.CompletedTask;

        sealed class Restoring
        {
            internal int Left;
            internal readonly List<TavernException> Failed = new List<TavernException>();
        }

        internal Session(Settings settings, ISessionOwner owner)
        {
            Settings = settings;
            this.owner = owner;
            token = settings.Options.Token;
            if (settings.Options.Resume == null) return;
            SessionSecret = settings.Options.Resume.Session;
            Seq = settings.Options.Resume.Seq;
            had = true;
        }

        // ---- called by the client

        /// <summary>Connects; returns when the session is open.</summary>
        internal async Task Start(CancellationToken cancel)
        {
            Task opened;
            lock (Gate)
            {
                if (WhyEnded != null)
                {
                    WhyEnded = null;
                    over = leaving = false;
                    State = State.Connecting;
                    first = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
                    running = new CancellationTokenSource();
                    var token = running.Token;
                    run = Task.Run(() => Run(token));
                }
                opened = first.Task;
            }
            var given = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
            using (cancel.Register(() => given.TrySetResult(true)))
            {
                if (await Task.WhenAny(opened, given.Task).ConfigureAwait(false) == opened)
                {
                    await opened.ConfigureAwait(false);
                    return;
                }
            }
            string why;
            lock (Gate) why = lastFailure;
            await Stop(false).ConfigureAwait(false);
            throw new TavernException(ErrorCode.Cancelled, "not connected: " + why, new OperationCanceledException(cancel));
        }

        /// <summary>Closes the connection; with endSession it also ends the session.</summary>
        internal async Task Stop(bool endSession)
        {
            bool open;
            CancellationTokenSource stopping;
            Task stopped;
            lock (Gate)
            {
                leaving = true;
                open = State == State.Open;
                stopping = running;
                stopped = run;
            }
            if (endSession && open)
            {
                try
                {
                    using (var limit = new CancellationTokenSource(ByeMs))
                        await Ask("bye", null, limit.Token).ConfigureAwait(false);
                }
                catch (TavernException)
                {
                    // The server sees the closed connection anyway.
                }
            }
            stopping?.Cancel();
            await Task.WhenAny(stopped, Task.Delay(2 * EndMs)).ConfigureAwait(false);
            lock (Gate) End(new TavernException(ErrorCode.Closed, "the client was closed"), !endSession);
        }

        /// <summary>Ends a client that cannot go on.</summary>
        internal void Fail(TavernException final)
        {
            lock (Gate)
            {
                End(final, false);
                running?.Cancel();
            }
        }

        internal Task<JsonValue> Ask(string op, Dictionary<string, object> members, CancellationToken cancel, Action<JsonValue> onOk = null) =>
            Ask(op, members, Decisions.Repeatable(op, members != null && members.ContainsKey("message_id")), cancel, onOk);

        internal async Task<JsonValue> Ask(string op, Dictionary<string, object> members, bool repeatable, CancellationToken cancel, Action<JsonValue> onOk = null)
        {
            Command command;
            // Under the lock from the call on: commands are sent in the order of the calls.
            lock (Gate) command = Begin(op, members, repeatable, onOk);
            using (var limit = new CancellationTokenSource(Settings.Options.CommandTimeout))
            using (limit.Token.Register(() => Forget(command, ErrorCode.Timeout)))
            using (cancel.Register(() => Forget(command, ErrorCode.Cancelled)))
                return await command.Reply.ConfigureAwait(false);
        }

        void Forget(Command command, string code)
        {
            lock (Gate)
            {
                pending.Remove(command.Id);
                var message = $"no reply to {command.Op} in time";
                if (State != State.Open) message += "; not connected: " + lastFailure;
                if (command.Sent && !command.Repeatable) command.Fail(new TavernException(ErrorCode.UnknownOutcome, message + "; it may have been executed"));
                else command.Fail(new TavernException(code, message));
            }
        }

        // ---- under the lock

        /// <summary>Puts a command into the queue.</summary>
        internal Command Begin(string op, Dictionary<string, object> members, bool repeatable, Action<JsonValue> onOk = null)
        {
            if (WhyEnded != null) throw WhyEnded;
            if (outbox.Count + pending.Count >= MostCommands) throw new TavernException("busy", $"{MostCommands} commands are already waiting; try again later");
            var sent = new Dictionary<string, object> { { "id", ++ids }, { "op", op } };
            foreach (var member in members ?? new Dictionary<string, object>())
                if (member.Value != null) sent[member.Key] = member.Value;
            string text;
            try
            {
                text = JsonMapper.Write(sent);
            }
            catch (ArgumentException failure)
            {
                throw new TavernException("bad_request", $"{op}: {failure.Message}", failure);
            }
            var command = new Command(ids, op, text, repeatable, onOk);
            outbox.Add(command);
            wake.Release();
            return command;
        }

        internal List<Command> Outbox => outbox;

        void End(TavernException final, bool keep)
        {
            if (over || (WhyEnded != null && keep)) return;
            WhyEnded = final;
            over = !keep;
            State = keep ? State.Suspended : State.Closed;
            Transport = null;
            first.TrySetException(final);
            _ = first.Task.Exception;
            if (keep)
            {
                Requeue();
                return;
            }
            // What starts next is another session.
            SessionSecret = null;
            Seq = 0;
            var all = outbox.Concat(pending.Values).ToList();
            outbox = new List<Command>();
            pending.Clear();
            foreach (var one in all) one.Fail(final);
            owner.Ended(final);
        }

        /// <summary>After a lost connection: commands that may be repeated are sent again, the others fail.</summary>
        void Requeue()
        {
            var again = new List<Command>();
            var failed = new List<Command>();
            foreach (var one in pending.Values.OrderBy(one => one.Id))
            {
                var then = Decisions.AfterLoss(one.Op, one.Repeatable, one.Sent);
                if (then == Next.Resend || then == Next.Keep)
                {
                    one.Sent = false;
                    again.Add(one);
                }
                else failed.Add(one);
            }
            pending.Clear();
            again.AddRange(outbox);
            outbox = again;
            foreach (var one in failed)
                one.Fail(new TavernException(ErrorCode.UnknownOutcome, $"the connection was lost before the reply to {one.Op}; it may have been executed"));
        }

        // ---- the connection

        async Task Run(CancellationToken cancel)
        {
            var final = await Guard("run", () => KeepConnected(cancel)).ConfigureAwait(false);
            lock (Gate)
                if (!leaving) End(final as TavernException ?? Failure("run", final), false);
        }

        static TavernException Failure(string part, Exception why) =>
            new TavernException(ErrorCode.Failed, $"the client failed ({part}: {why?.Message}); create a new one", why);

        /// <summary>Runs a part of the client until it ends, and says why. What it did not expect ends the client, so that no call waits for ever.</summary>
        async Task<Exception> Guard(string part, Func<Task> runs)
        {
            try
            {
                PartStarts(part);
                await runs().ConfigureAwait(false);
                return new LinkLost(part + " has ended");
            }
            catch (Exception why) when (why is LinkLost || why is LinkRefused || why is TavernException || why is OperationCanceledException)
            {
                return why;
            }
            catch (Exception why)
            {
                Settings.Debug($"{part} failed: {why}");
                return Failure(part, why);
            }
        }

        async Task KeepConnected(CancellationToken cancel)
        {
            while (true)
            {
                var link = await Connect(cancel).ConfigureAwait(false);
                var began = clock.ElapsedMilliseconds;
                var why = await Serve(link, cancel).ConfigureAwait(false);
                link.Close();
                cancel.ThrowIfCancellationRequested();
                long wait;
                lock (Gate)
                {
                    Lost(why, clock.ElapsedMilliseconds - began);
                    wait = closingMs ?? NextWait(0);
                    closingMs = null;
                }
                await Task.Delay((int)wait, cancel).ConfigureAwait(false);
            }
        }

        long NextWait(long retryAfterMs) => Decisions.BackoffMs(++attempts, random.NextDouble(), Math.Min(retryAfterMs, 3600000));

        /// <summary>Prepares the next connection, or throws when the client must not reconnect.</summary>
        void Lost(Exception why, long lasted)
        {
            Transport = null;
            Settings.Debug("connection lost: " + why.Message);
            if (lasted > SteadyMs) attempts = 0;
            if (leaving) throw new OperationCanceledException();
            if (why is LinkLost lost)
            {
                stale |= Decisions.AfterClose(lost.CloseCode, Settings.Renews, out var final) == Next.NewToken;
                if (final != null) throw final;
            }
            else if (!(why is LinkRefused)) throw why as TavernException ?? Failure("connection", why);
            // Try the preferred transport again after a fallback.
            if (worked.Contains(Settings.Transports[0])) transportAt = refusals = 0;
            State = State.Connecting;
            Requeue();
            owner.Reconnecting(why.Message);
        }

        /// <summary>Tries until it is connected. A failure may switch the transport or the address, or end the client.</summary>
        async Task<Link> Connect(CancellationToken cancel)
        {
            while (true)
            {
                Transport transport;
                Link link = null;
                Exception failure;
                long began = 0;
                lock (Gate) transport = Settings.Transports[transportAt % Settings.Transports.Count];
                try
                {
                    await ProvideToken(cancel).ConfigureAwait(false);
                    lock (Gate) link = Link.Make(transport, AccessNow());
                    began = clock.ElapsedMilliseconds;
                    var hello = await link.Open(cancel).ConfigureAwait(false);
                    lock (Gate) IsOpen(transport, hello);
                    return link;
                }
                catch (Exception why)
                {
                    link?.Close();
                    cancel.ThrowIfCancellationRequested();
                    failure = why;
                }
                var limit = Settings.Options.ConnectTimeout;
                if (failure is LinkLost && link != null && clock.ElapsedMilliseconds - began >= limit.TotalMilliseconds - 1)
                {
                    failure = new LinkRefused($"no hello within {limit.TotalSeconds} s", failure);
                    // The server, or something before it that does not know this transport.
                    lock (Gate) addressAt++;
                }
                int wait;
                lock (Gate) wait = NotConnected(transport, failure);
                await Task.Delay(wait, cancel).ConfigureAwait(false);
            }
        }

        Access AccessNow() => new Access
        {
            Address = Settings.Addresses[addressAt % Settings.Addresses.Count], Token = token, User = Settings.Options.User,
            Statuses = Settings.Options.Statuses, OpenTimeout = Settings.Options.ConnectTimeout, Ticket = new Ticket(SessionSecret, Seq), Seq = () => { lock (Gate) return Seq; },
        };

        /// <summary>The time until the next attempt; throws what ends the client.</summary>
        int NotConnected(Transport transport, Exception why)
        {
            lastFailure = why.Message;
            Settings.Debug($"not connected ({transport}): {why.Message}");
            if (why is TavernException refused)
            {
                var then = refused.Code == ErrorCode.Failed ? Next.Close : Decisions.AfterHello(refused.Code, Settings.Renews, fresh);
                if (then == Next.Close) throw refused;
                owner.Error(refused);
                stale |= then == Next.NewToken;
                return then == Next.NewToken ? 0 : (int)NextWait(refused.RetryAfterMs ?? 0);
            }
            if (why is LinkRefused)
            {
                if (++refusals >= (worked.Contains(transport) ? RefusalsWorked : RefusalsNew))
                {
                    transportAt++;
                    refusals = 0;
                }
            }
            else if (why is LinkLost)
            {
                addressAt++;
                // No server answered, so the transport is not at fault: go back to the preferred one.
                if (worked.Contains(Settings.Transports[0])) transportAt = refusals = 0;
            }
            else throw Failure("connect", why);
            owner.Error(new TavernException(ErrorCode.Unreachable, why.Message, why));
            return (int)NextWait(0);
        }

        /// <summary>The session was resumed, or a new one has started.</summary>
        void IsOpen(Transport transport, JsonValue hello)
        {
            var resumed = hello["resumed"].AsBool() && !hello["reset"].AsBool();
            var another = had && !resumed;
            SessionSecret = hello["session"].AsString();
            if (!resumed) Seq = acked = 0;
            had = true;
            fresh = false;
            refusals = 0;
            worked.Add(transport);
            Hello = hello;
            State = State.Open;
            Transport = transport;
            heardAt = clock.ElapsedMilliseconds;
            Settings.Debug($"connected ({transport}), resumed: {resumed}");
            wake.Release();
            owner.Opened(hello, resumed, another);
            if (another) RestoreAll();
            first.TrySetResult(true);
        }

        /// <summary>Sends the commands that restore everything before any that wait, and tells the owner after the last reply.</summary>
        void RestoreAll()
        {
            var waiting = outbox;
            outbox = new List<Command>();
            var sent = restoring = new Restoring();
            owner.Restore();
            sent.Left = outbox.Count;
            foreach (var one in outbox)
                one.OnEnd = refused =>
                {
                    if (refused != null) sent.Failed.Add(refused);
                    // After a newer restore, that one tells.
                    if (--sent.Left == 0 && restoring == sent && WhyEnded == null) owner.WasReset(sent.Failed);
                };
            outbox.AddRange(waiting);
            if (sent.Left == 0) owner.WasReset(sent.Failed);
        }

        /// <summary>Runs a connection until it ends, and says why.</summary>
        async Task<Exception> Serve(Link link, CancellationToken cancel)
        {
            using (var parts = CancellationTokenSource.CreateLinkedTokenSource(cancel))
            {
                var read = Guard("read", () => Read(link, parts.Token));
                var write = Guard("write", () => Write(link, parts.Token));
                var all = new List<Task<Exception>>
                {
                    read, write, Guard("heartbeat", () => Heartbeat(parts.Token)), Guard("renew", () => Renew(parts.Token)),
                    Guard("prefer", () => Prefer(parts.Token)),
                };
                var ended = await Task.WhenAny(all).ConfigureAwait(false);
                if (ended == write && write.Result is LinkLost lost && !lost.Unsent && !cancel.IsCancellationRequested)
                {
                    // The reader knows the close code and may have more events.
                    await Task.WhenAny(read, Task.Delay(EndMs, parts.Token)).ConfigureAwait(false);
                    if (read.IsCompleted) ended = read;
                }
                parts.Cancel();
                link.Close();
                // Some implementations of sockets leave a read waiting for ever.
                await Task.WhenAny(Task.WhenAll(all), Task.Delay(EndMs)).ConfigureAwait(false);
                return ended.Result;
            }
        }

        async Task Read(Link link, CancellationToken cancel)
        {
            while (true) TakeAll(await link.Receive(cancel).ConfigureAwait(false));
        }

        async Task Write(Link link, CancellationToken cancel)
        {
            while (true)
            {
                var next = NextCommand();
                if (next == null)
                {
                    await wake.WaitAsync(cancel).ConfigureAwait(false);
                    continue;
                }
                JsonValue reply;
                try
                {
                    reply = await link.Send(next.Id, next.Text, cancel).ConfigureAwait(false);
                }
                catch (LinkLost lost) when (lost.Unsent)
                {
                    lock (Gate) next.Sent = false;
                    throw;
                }
                if (reply == null) continue;
                lock (Gate) TakeReply(next.Id, reply);
            }
        }

        /// <summary>Takes the next command to send from the queue; null: there is none.</summary>
        internal Command NextCommand()
        {
            lock (Gate)
            {
                var most = Hello["frame_bytes"].AsLong();
                var at = 0;
                try
                {
                    while (at < outbox.Count)
                    {
                        var next = outbox[at++];
                        if (next.IsEnded) continue;
                        if (most > 0 && System.Text.Encoding.UTF8.GetByteCount(next.Text) > most)
                        {
                            // The server would close the connection.
                            next.Fail(new TavernException("too_large", $"{next.Op} has more than {most} bytes"));
                            continue;
                        }
                        next.Sent = true;
                        pending[next.Id] = next;
                        return next;
                    }
                    return null;
                }
                finally
                {
                    outbox.RemoveRange(0, at);
                }
            }
        }

        /// <summary>Acknowledges events once per heartbeat, and ends a connection without traffic for two heartbeats.</summary>
        async Task Heartbeat(CancellationToken cancel)
        {
            Transport? transport;
            long period;
            lock (Gate)
            {
                transport = Transport;
                period = Math.Min(Math.Max(100, Hello["heartbeat_ms"].AsLong(15000)), 3600000);
            }
            // Each poll acknowledges and has its own limit.
            if (transport == Tavern.Transport.Poll) await Task.Delay(Timeout.Infinite, cancel).ConfigureAwait(false);
            while (true)
            {
                await Task.Delay((int)period, cancel).ConfigureAwait(false);
                lock (Gate)
                {
                    var silent = clock.ElapsedMilliseconds - heardAt;
                    if (silent > 2 * period) throw new LinkLost("heartbeat timeout");
                    // Waiting commands serve as the heartbeat.
                    if (outbox.Count > 0 || WhyEnded != null) continue;
                    if (Seq > acked) Begin("ack", new Dictionary<string, object> { { "seq", acked = Seq } }, true);
                    else if (transport == Tavern.Transport.WebSocket && silent > period * 9 / 10) Begin("ping", null, true);
                }
            }
        }

        /// <summary>Ends a connection over a fallback after a while, if the preferred transport has worked before.</summary>
        async Task Prefer(CancellationToken cancel)
        {
            bool fallback;
            lock (Gate) fallback = Transport != Settings.Transports[0] && worked.Contains(Settings.Transports[0]);
            await Task.Delay(fallback ? (int)(StandInMs * (1 + random.NextDouble())) : Timeout.Infinite, cancel).ConfigureAwait(false);
            throw new LinkLost("back to the preferred transport");
        }

        /// <summary>Replaces the token before it expires and sends the new one to the server.</summary>
        async Task Renew(CancellationToken cancel)
        {
            while (true)
            {
                string current;
                lock (Gate) current = token;
                var left = Decisions.LeftMs(current);
                if (left == null || !Settings.Renews) await Task.Delay(Timeout.Infinite, cancel).ConfigureAwait(false);
                await Task.Delay((int)Decisions.RenewAfterMs(left.Value), cancel).ConfigureAwait(false);
                lock (Gate) stale = true;
                try
                {
                    await ProvideToken(cancel).ConfigureAwait(false);
                }
                catch (LinkLost why)
                {
                    // The connection stays until the server ends it.
                    lock (Gate) owner.Error(new TavernException(ErrorCode.Unreachable, why.Message, why));
                    continue;
                }
                lock (Gate) current = token;
                try
                {
                    await Ask("hello", new Dictionary<string, object> { { "token", current } }, cancel).ConfigureAwait(false);
                }
                catch (TavernException refused) when (refused.Code != ErrorCode.Cancelled)
                {
                    throw new LinkLost("the new token was rejected: " + refused.Message, 0, false, refused);
                }
            }
        }

        /// <summary>Asks the app for a token when there is none that is still good.</summary>
        async Task ProvideToken(CancellationToken cancel)
        {
            if (!Settings.Renews) return;
            lock (Gate)
                if (token != null && !stale && (Decisions.LeftMs(token) ?? 1) > 0) return;
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(cancel))
            {
                Task<string> asked;
                try
                {
                    asked = Task.Run(() => Settings.Options.GetToken(limit.Token), limit.Token);
                    // A function that ignores its token must not stop the client.
                    if (await Task.WhenAny(asked, Task.Delay(TokenMs, limit.Token)).ConfigureAwait(false) != asked)
                    {
                        _ = asked.ContinueWith(ignored => ignored.Exception, TaskScheduler.Default);
                        cancel.ThrowIfCancellationRequested();
                        throw new LinkLost("GetToken did not answer in time");
                    }
                    PartStarts("GetToken");
                }
                finally
                {
                    limit.Cancel();
                }
                if (asked.Status != TaskStatus.RanToCompletion || string.IsNullOrEmpty(asked.Result))
                    // The source of tokens may be down for a while: retry, as with a server that does not answer.
                    throw new LinkLost("GetToken failed: " + (asked.Exception?.InnerException?.Message ?? "it gave no token"), 0, false, asked.Exception);
                lock (Gate)
                {
                    token = asked.Result;
                    stale = false;
                    fresh = true;
                }
            }
        }

        // ---- frames

        void TakeAll(List<JsonValue> frames)
        {
            lock (Gate)
            {
                heardAt = clock.ElapsedMilliseconds;
                foreach (var frame in frames) Take(frame);
            }
        }

        void Take(JsonValue frame)
        {
            if (frame.Has("event")) TakeEvent(frame);
            else if (frame["id"].TryLong(out var id)) TakeReply(id, frame);
            else if (frame.Has("party")) owner.TakeEvent(frame);
        }

        void TakeEvent(JsonValue frame)
        {
            if (frame["seq"].TryLong(out var seq))
            {
                if (seq <= Seq) return;
                Seq = seq;
            }
            switch (frame["event"].AsString())
            {
                case "closing":
                    var wait = frame["reconnect_after_ms"].AsLong();
                    closingMs = wait >= 0 && wait <= 3600000 ? wait : 0;
                    owner.Closing(closingMs.Value);
                    throw new LinkLost("the server is stopping");
                case "superseded":
                    throw new LinkLost("superseded", Decisions.Superseded);
            }
            owner.TakeEvent(frame);
        }

        void TakeReply(long id, JsonValue frame)
        {
            heardAt = clock.ElapsedMilliseconds;
            if (!pending.TryGetValue(id, out var command)) return;
            var ok = frame["ok"];
            if (ok.Kind == JsonKind.Object)
            {
                // It stays pending until this is done: if it fails, the command fails with the client.
                command.OnOk?.Invoke(ok);
                pending.Remove(id);
                command.Succeed(ok);
                return;
            }
            pending.Remove(id);
            if (command.IsEnded) return;
            var refused = TavernException.FromWire(frame["error"]);
            var then = Decisions.AfterReply(command.Op, command.Repeatable, Settings.Renews, command.Retries, refused, out var wait);
            if (then == Next.Report)
            {
                command.Fail(refused);
                return;
            }
            command.Retries++;
            command.Sent = false;
            // Until it is in the queue again it is pending, so that it fails with the session.
            pending[id] = command;
            if (then == Next.Retry)
            {
                _ = Later(command, (int)Math.Min(wait, 3600000));
                return;
            }
            stale |= refused.Code == "unauthenticated";
            throw new LinkLost(refused.Message, 0, true);
        }

        async Task Later(Command command, int wait)
        {
            await Task.Delay(wait).ConfigureAwait(false);
            lock (Gate)
            {
                // It may have ended, or be in the queue again after a lost connection.
                if (!pending.TryGetValue(command.Id, out var waiting) || waiting != command || command.Sent) return;
                pending.Remove(command.Id);
                outbox.Add(command);
                wake.Release();
            }
        }
    }
}
