using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>Events were dropped. Presence maps and the party are loaded again without further action.</summary>
    public sealed class Gap
    {
        /// <summary>What the dropped messages were about; both null: any event.</summary>
        public string Channel { get; internal set; }
        public string Pattern { get; internal set; }
        /// <summary>The numbers of the dropped events.</summary>
        public long From { get; internal set; }
        public long To { get; internal set; }
        /// <summary>How many events were dropped because the app was too slow.</summary>
        public int Overflow { get; internal set; }
    }

    /// <summary>A fresh token does not allow something any more. It is not restored in a new session.</summary>
    public sealed class Revoked
    {
        /// <summary>"subscribe", "presence" or "join".</summary>
        public string Verb { get; internal set; }
        public string Channel { get; internal set; }
        public string Pattern { get; internal set; }
    }

    /// <summary>One user's connection. All methods may be called from any thread; events are raised one after the other, see
    /// <see cref="Options.Dispatcher"/>.</summary>
    public sealed class Client : ISessionOwner
    {
        internal readonly Session Session;
        internal readonly Dispatcher Dispatcher;
        readonly Dictionary<string, Channel> channels = new Dictionary<string, Channel>();
        // Channels by the name that the server chose for them.
        internal readonly Dictionary<string, Channel> Aliases = new Dictionary<string, Channel>();
        readonly Dictionary<string, Pattern> patterns = new Dictionary<string, Pattern>();
        readonly bool echo;
        long lastMessage;

        /// <summary>A client of the server at url (http, https, ws or wss). It connects when <see cref="ConnectAsync"/> is called.</summary>
        /// <exception cref="ArgumentException">The URL or the options are wrong.</exception>
        public Client(string url, Options options = null)
        {
            options = options ?? new Options();
            echo = options.Echo;
            Session = new Session(new Settings(url, options), this);
            Dispatcher = new Dispatcher(options.Dispatcher, Overflowed,
                failure => Session.Fail(new TavernException(ErrorCode.Failed, $"a handler of an event failed: {failure.Message}", failure)));
            Me = new Me(this);
            Party = new Party(this);
        }

        /// <summary>The session is open.</summary>
        public event Action OnOpen;
        /// <summary>The connection is lost; with the reason.</summary>
        public event Action<string> OnReconnecting;
        /// <summary>The client is back, and nothing was lost.</summary>
        public event Action OnResumed;
        /// <summary>The client is back with a new session. Subscriptions, presence and presence maps are restored, except what failed; messages in between
        /// may be lost.</summary>
        public event Action<IReadOnlyList<TavernException>> OnReset;
        /// <summary>The server is stopping; the client reconnects after this time.</summary>
        public event Action<TimeSpan> OnClosing;
        /// <summary>The client is closed: null after CloseAsync, otherwise why. The code is "superseded" when another connection took over the session.</summary>
        public event Action<TavernException> OnClosed;
        /// <summary>An attempt to connect or to renew the token failed, or the server refused what the client sent on its own. The client goes on.</summary>
        public event Action<Exception> OnError;
        /// <summary>Events were dropped.</summary>
        public event Action<Gap> OnGap;
        /// <summary>A fresh token has fewer rights.</summary>
        public event Action<Revoked> OnRevoked;
        /// <summary>Every event of the server, as it is.</summary>
        public event Action<JsonValue> OnEvent;

        /// <summary>The user of this client.</summary>
        public Me Me { get; }

        /// <summary>The party of the user.</summary>
        public Party Party { get; }

        /// <summary>The state of the connection.</summary>
        public State State
        {
            get { lock (Session.Gate) return Session.State; }
        }

        /// <summary>The transport in use, or null.</summary>
        public Transport? Transport
        {
            get { lock (Session.Gate) return Session.Transport; }
        }

        /// <summary>The name of the server.</summary>
        public string Node
        {
            get { lock (Session.Gate) return Session.Hello["node"].AsString(); }
        }

        /// <summary>What another process needs to resume this session, as <see cref="Options.Resume"/>, or null. It contains a secret.</summary>
        public Ticket Ticket
        {
            get { lock (Session.Gate) return Session.SessionSecret == null ? null : new Ticket(Session.SessionSecret, Session.Seq); }
        }

        /// <summary>Returns when the session is open. Fails when the server refuses; a server that does not answer is tried again until this is cancelled.</summary>
        public Task ConnectAsync(CancellationToken cancel = default(CancellationToken)) => Session.Start(cancel);

        /// <summary>Ends the session: the user leaves all channels at once, without a grace period.</summary>
        public Task CloseAsync() => Session.Stop(true);

        /// <summary>Closes the connection and keeps the session; ConnectAsync resumes it as long as the server keeps it.</summary>
        public Task SuspendAsync() => Session.Stop(false);

        /// <summary>The channel of this name; always the same object.</summary>
        public Channel Channel(string name)
        {
            lock (Session.Gate)
            {
                if (!channels.TryGetValue(name, out var found)) channels[name] = found = new Channel(this, name);
                return found;
            }
        }

        /// <summary>All channels that match a Redis glob; always the same object.</summary>
        public Pattern Pattern(string glob)
        {
            lock (Session.Gate)
            {
                if (!patterns.TryGetValue(glob, out var found)) patterns[glob] = found = new Pattern(this, glob);
                return found;
            }
        }

        /// <summary>Sends any command of the protocol and returns its reply. A repeatable command is sent again after a lost connection: use it only for
        /// commands that may be executed twice.</summary>
        public Task<JsonValue> CommandAsync(string op, IDictionary<string, object> members = null, bool repeatable = false, CancellationToken cancel = default(CancellationToken)) =>
            Session.Ask(op, members == null ? null : new Dictionary<string, object>(members), repeatable, cancel);

        // ---- called by the session, under its lock

        /// <summary>Raises an event where the app wants it.</summary>
        internal void Raise<T>(Func<Action<T>> handlers, T value, bool droppable = false)
        {
            if (handlers() != null) Dispatcher.Add(droppable, () => handlers()?.Invoke(value));
        }

        void ISessionOwner.Opened(JsonValue hello, bool resumed, bool another)
        {
            Party.SetSnapshot(hello);
            if (another) return;
            Dispatcher.Add(false, () => (resumed ? OnResumed : OnOpen)?.Invoke());
        }

        void ISessionOwner.WasReset(List<TavernException> failed) => Raise(() => OnReset, failed);

        void ISessionOwner.Reconnecting(string why) => Raise(() => OnReconnecting, why);

        void ISessionOwner.Closing(long reconnectAfterMs) => Raise(() => OnClosing, TimeSpan.FromMilliseconds(reconnectAfterMs));

        void ISessionOwner.Ended(TavernException final) => Raise(() => OnClosed, final.Code == ErrorCode.Closed ? null : final);

        void ISessionOwner.Error(Exception why) => Refused(why);

        internal void Refused(Exception why) => Raise(() => OnError, why);

        void ISessionOwner.Restore()
        {
            foreach (var channel in channels.Values) channel.Restore();
            foreach (var pattern in patterns.Values) pattern.Restore();
        }

        void ISessionOwner.TakeEvent(JsonValue frame) => TakeEvent(frame);

        internal void TakeEvent(JsonValue frame)
        {
            var kind = frame["event"].AsString();
            if (kind == null)
            {
                Party.SetSnapshot(frame);
                return;
            }
            if (kind != "message" && frame["message_id"].TryLong(out var message))
            {
                // An inbox message comes again in each session until it is acknowledged.
                if (message <= lastMessage) return;
                lastMessage = message;
            }
            Raise(() => OnEvent, frame, true);
            switch (kind)
            {
                case "message":
                    TakeMessage(Message.FromWire(frame));
                    break;
                case "user_online": case "user_offline": case "client_online": case "client_updated": case "client_offline": case "presence": case "presence_mode":
                    Named(frame["channel"].AsString())?.Map.Take(frame);
                    break;
                case "party":
                    Party.Take(frame, Me.Name);
                    break;
                case "status": case "statuses": case "inbox":
                    Me.Take(kind, frame);
                    break;
                case "gap":
                    TakeGap(frame);
                    break;
                case "revoked":
                    TakeRevoked(frame);
                    break;
            }
        }

        internal void TakeMessage(Message message)
        {
            var own = !echo && message.Client != null && message.Client == Session.Hello["client"].AsString();
            // Members receive it without subscribing.
            if (message.Channel.StartsWith("party#", StringComparison.Ordinal)) Party.TakeSaid(message);
            Named(message.Channel)?.TakeSubscribed(message, own);
            if (own) return;
            foreach (var pattern in patterns.Values) pattern.Take(message);
        }

        void TakeGap(JsonValue frame)
        {
            var gap = new Gap
            {
                Channel = frame["channel"].AsString(), Pattern = frame["pattern"].AsString(), From = frame["from"].AsLong(), To = frame["to"].AsLong(),
            };
            foreach (var channel in channels.Values)
                if (gap.Channel == null ? gap.Pattern == null : Named(gap.Channel) == channel) channel.TakeGap(gap);
            foreach (var pattern in patterns.Values)
                if (gap.Channel == null && (gap.Pattern ?? pattern.Glob) == pattern.Glob) pattern.TakeGap(gap);
            Raise(() => OnGap, gap);
            if (gap.Channel != null || gap.Pattern != null) return;
            if (Party.HasCurrent) Party.Refresh();
            Me.Reload();
        }

        void TakeRevoked(JsonValue frame)
        {
            var revoked = new Revoked { Verb = frame["verb"].AsString(""), Channel = frame["channel"].AsString(), Pattern = frame["pattern"].AsString() };
            if (revoked.Pattern == null) Named(revoked.Channel)?.TakeRevoked(revoked.Verb);
            else if (patterns.TryGetValue(revoked.Pattern, out var pattern)) pattern.TakeRevoked();
            Raise(() => OnRevoked, revoked);
        }

        Channel Named(string name)
        {
            if (name == null) return null;
            if (Aliases.TryGetValue(name, out var found)) return found;
            return channels.TryGetValue(name, out found) ? found : null;
        }

        // ---- called by the dispatcher

        void Overflowed(int dropped)
        {
            var gap = new Gap { Overflow = dropped };
            OnGap?.Invoke(gap);
            List<Channel> all;
            lock (Session.Gate) all = new List<Channel>(channels.Values);
            foreach (var channel in all) channel.RaiseGap(gap);
        }
    }
}
