using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>A place in the history of a channel: everything up to it is known.</summary>
    public sealed class Position
    {
        public Position(long epoch, long offset)
        {
            Epoch = epoch;
            Offset = offset;
        }

        public long Epoch { get; }
        public long Offset { get; }

        internal bool IsAfter(Position other) => Epoch > other.Epoch || (Epoch == other.Epoch && Offset > other.Offset);

        internal static Position FromWire(JsonValue frame) =>
            frame["epoch"].TryLong(out var epoch) && frame["offset"].TryLong(out var offset) ? new Position(epoch, offset) : null;

        internal Dictionary<string, object> ToWire() => new Dictionary<string, object> { { "epoch", Epoch }, { "offset", Offset } };
    }

    /// <summary>One message of a channel.</summary>
    public sealed class Message
    {
        public string Channel { get; private set; }
        public JsonValue Data { get; private set; }
        /// <summary>The publisher; null for services and anonymous users.</summary>
        public string User { get; private set; }
        public string Client { get; private set; }
        /// <summary>"base64" when the published bytes are not valid text: Data is then a string.</summary>
        public string Encoding { get; private set; }
        /// <summary>Its place in the history of the channel, if that keeps one, and when it was stored.</summary>
        public Position Position { get; private set; }
        public DateTimeOffset? At { get; private set; }

        internal static Message FromWire(JsonValue frame) => new Message
        {
            Channel = frame["channel"].AsString(""), Data = frame["data"], User = frame["from"]["user"].AsString(), Client = frame["from"]["client"].AsString(),
            Encoding = frame["encoding"].AsString(), Position = Tavern.Position.FromWire(frame), At = Time.FromWire(frame["at"]),
        };
    }

    internal static class Time
    {
        // What DateTimeOffset can hold.
        const long MostMs = 253402300799999;

        internal static DateTimeOffset? FromWire(JsonValue ms) =>
            ms.TryLong(out var number) && number > 0 && number <= MostMs ? DateTimeOffset.FromUnixTimeMilliseconds(number) : (DateTimeOffset?)null;
    }

    /// <summary>The answer to a publish.</summary>
    public sealed class Published
    {
        /// <summary>How many subscriptions on the server received it.</summary>
        public int Receivers { get; private set; }
        /// <summary>Its place, if the channel keeps history.</summary>
        public Position Position { get; private set; }
        /// <summary>This id was published before: the message is not delivered again.</summary>
        public bool Duplicate { get; private set; }

        internal static Published FromWire(JsonValue ok) =>
            new Published { Receivers = ok["receivers"].AsInt(), Position = Tavern.Position.FromWire(ok), Duplicate = ok["duplicate"].AsBool() };
    }

    /// <summary>One channel. Subscribing, being present (JoinAsync) and watching who is present (PresenceAsync) are independent.</summary>
    public sealed class Channel
    {
        internal readonly Presence Map;
        readonly Client client;
        // What a new session restores.
        bool subscribed, joined;
        internal bool Watching;
        object state;
        // Calls of SubscribeAsync with a position: over HTTP, messages may arrive before the reply.
        int subscribing;
        Position position;
        // Missing messages were asked for; a gap was announced, and any later message may follow.
        bool healing, jumping;

        internal Channel(Client client, string name)
        {
            this.client = client;
            Name = name;
            Map = new Presence(client, this);
        }

        /// <summary>The name of the channel.</summary>
        public string Name { get; }

        /// <summary>A message has arrived. This does not subscribe.</summary>
        public event Action<Message> OnMessage;
        /// <summary>Messages were dropped.</summary>
        public event Action<Gap> OnGap;
        /// <summary>The client had asked for the messages it missed: true if it got all of them.</summary>
        public event Action<bool> OnRecovered;

        /// <summary>The place of the last message that arrived; null without history.</summary>
        public Position Position
        {
            get { lock (client.Session.Gate) return position; }
        }

        Dictionary<string, object> Named() => new Dictionary<string, object> { { "channel", Name } };

        /// <summary>Subscribes; messages arrive from now on. With last or since, those of the history come first: so many, or those after a position.</summary>
        public async Task SubscribeAsync(int? last = null, Position since = null, CancellationToken cancel = default(CancellationToken))
        {
            var asked = Named();
            if (last == null && since == null)
            {
                lock (client.Session.Gate)
                {
                    // Watching presence includes the subscription.
                    subscribed |= Watching;
                    if (Watching) return;
                }
                await client.Session.Ask("subscribe", asked, cancel, Granted).ConfigureAwait(false);
                return;
            }
            if (since != null) asked["since"] = since.ToWire();
            else asked["last"] = last;
            Position known;
            lock (client.Session.Gate)
            {
                known = position;
                position = null;
                subscribing++;
            }
            try
            {
                await client.Session.Ask("subscribe", asked, cancel, Granted).ConfigureAwait(false);
            }
            catch (TavernException)
            {
                lock (client.Session.Gate) position = position ?? known;
                throw;
            }
            finally
            {
                lock (client.Session.Gate) subscribing--;
            }
        }

        /// <summary>Ends the subscription and watching; a presence in the channel stays.</summary>
        public Task UnsubscribeAsync(CancellationToken cancel = default(CancellationToken)) => client.Session.Ask("unsubscribe", Named(), cancel, ok =>
        {
            subscribed = Watching = Map.Synced = false;
            position = null;
        });

        /// <summary>Publishes any value that is JSON. Fails with "unknown_outcome" when the connection is lost before the reply. With an id, on a channel with
        /// history, it is sent again and published once. retain keeps it as the last value of the channel.</summary>
        public async Task<Published> PublishAsync(object data, string id = null, bool retain = false, CancellationToken cancel = default(CancellationToken))
        {
            var asked = Named();
            asked["data"] = data ?? JsonValue.Null;
            if (id != null) asked["message_id"] = id;
            if (retain) asked["retain"] = true;
            return Published.FromWire(await client.Session.Ask("publish", asked, cancel).ConfigureAwait(false));
        }

        /// <summary>A page of the history, the oldest message first: the last messages, those after or those before an offset. It has epoch, offset, messages and
        /// more.</summary>
        public Task<JsonValue> HistoryAsync(long? after = null, long? before = null, int? limit = null, CancellationToken cancel = default(CancellationToken))
        {
            var asked = Named();
            asked["after"] = after;
            asked["before"] = before;
            asked["limit"] = limit;
            return client.Session.Ask("history", asked, cancel);
        }

        /// <summary>Makes this client present, with a small state: any JSON.</summary>
        public Task JoinAsync(object state = null, CancellationToken cancel = default(CancellationToken)) => WithState("join", state, cancel);

        /// <summary>Replaces the state.</summary>
        public Task UpdateAsync(object state, CancellationToken cancel = default(CancellationToken)) => WithState("update", state, cancel);

        async Task WithState(string op, object given, CancellationToken cancel)
        {
            var asked = Named();
            try
            {
                asked["state"] = JsonValue.From(given);
            }
            catch (ArgumentException failure)
            {
                throw new TavernException("bad_request", $"{op}: {failure.Message}", failure);
            }
            await client.Session.Ask(op, asked, cancel, ok =>
            {
                joined |= op == "join";
                state = asked["state"];
            }).ConfigureAwait(false);
        }

        /// <summary>Ends the presence of this client.</summary>
        public Task LeaveAsync(CancellationToken cancel = default(CancellationToken)) => client.Session.Ask("leave", Named(), cancel, ok => joined = false);

        /// <summary>Asks the server who is present: one page, with version, users, count and next.</summary>
        public Task<JsonValue> WhoAsync(bool countsOnly = false, string after = null, int? limit = null, CancellationToken cancel = default(CancellationToken))
        {
            var asked = Named();
            if (countsOnly) asked["counts_only"] = true;
            asked["after"] = after;
            asked["limit"] = limit;
            return client.Session.Ask("who", asked, cancel);
        }

        /// <summary>The live map of who is present; the first call starts watching, which includes a subscription.</summary>
        public async Task<Presence> PresenceAsync(CancellationToken cancel = default(CancellationToken))
        {
            bool watching;
            lock (client.Session.Gate) watching = Watching;
            if (!watching) await client.Session.Ask("subscribe", WithPresence(), cancel, Watched).ConfigureAwait(false);
            return Map;
        }

        Dictionary<string, object> WithPresence()
        {
            var asked = Named();
            asked["presence"] = true;
            return asked;
        }

        // ---- called under the lock

        internal void Granted(JsonValue ok)
        {
            subscribed = true;
            var recovered = ok["recovered"];
            // Over HTTP messages may arrive before this reply; then the position is theirs.
            if (position == null || (recovered.Kind == JsonKind.Bool && !recovered.AsBool())) position = Tavern.Position.FromWire(ok);
            if (ok["channel"].AsString() is string chosen && chosen != Name) client.Aliases[chosen] = this;
            if (recovered.Kind != JsonKind.Bool) return;
            client.Raise(() => OnRecovered, recovered.AsBool());
            if (!recovered.AsBool()) client.Raise(() => OnGap, new Gap { Channel = Name });
        }

        internal void Watched(JsonValue ok)
        {
            Granted(ok);
            Watching = true;
            if (ok["members"].Kind == JsonKind.Object) Map.Load(ok["members"]);
        }

        /// <summary>Sends a command that nobody waits for; a refusal is an event.</summary>
        void Send(Dictionary<string, object> members, Action<JsonValue> onOk, Action onEnd)
        {
            if (client.Session.WhyEnded != null)
            {
                onEnd();
                return;
            }
            client.Session.Begin("subscribe", members, true, onOk).OnEnd = refused =>
            {
                onEnd();
                if (refused != null && client.Session.WhyEnded == null) client.Refused(refused);
            };
        }

        /// <summary>Asks for a snapshot: the map has missed changes.</summary>
        internal void Reload()
        {
            if (Watching) Send(WithPresence(), Watched, () => { });
        }

        internal void TakeSubscribed(Message message, bool silent)
        {
            if (subscribed || subscribing > 0) Take(message, silent);
        }

        /// <summary>Delivers a message. One that this client published itself only moves the position, if the app does not want it.</summary>
        internal void Take(Message message, bool silent)
        {
            if (message.Position is Position place)
            {
                if (position != null && !place.IsAfter(position)) return;
                if (position != null && place.Epoch == position.Epoch && place.Offset > position.Offset + 1 && !jumping)
                {
                    Heal();
                    return;
                }
                position = place;
                jumping = false;
            }
            if (!silent) client.Raise(() => OnMessage, message, true);
        }

        /// <summary>Asks for missing messages; those that arrive meanwhile come again.</summary>
        void Heal()
        {
            if (healing) return;
            healing = true;
            var asked = Named();
            asked["since"] = position.ToWire();
            Send(asked, Granted, HealingEnded);
        }

        internal void HealingEnded() => healing = false;

        internal void TakeGap(Gap gap)
        {
            jumping |= gap.Channel != null;
            client.Raise(() => OnGap, gap);
            Map.Lose();
        }

        internal void TakeRevoked(string verb)
        {
            if (verb == "join")
            {
                joined = false;
                return;
            }
            if (verb == "subscribe") subscribed = false;
            Watching = Map.Synced = false;
        }

        /// <summary>Sends the commands that restore this channel in a new session.</summary>
        internal void Restore()
        {
            var asked = Watching ? WithPresence() : Named();
            if (position != null) asked["since"] = position.ToWire();
            // Any message may follow until the reply.
            position = null;
            if (Watching) Map.Synced = false;
            if (Watching) client.Session.Begin("subscribe", asked, true, Watched);
            else if (subscribed) client.Session.Begin("subscribe", asked, true, Granted);
            if (!joined) return;
            var join = Named();
            join["state"] = state;
            client.Session.Begin("join", join, true);
        }

        // ---- called by the dispatcher

        internal void RaiseGap(Gap gap) => OnGap?.Invoke(gap);
    }

    /// <summary>All channels that match a Redis glob.</summary>
    public sealed class Pattern
    {
        readonly Client client;
        bool subscribed;

        internal Pattern(Client client, string glob)
        {
            this.client = client;
            Glob = glob;
        }

        public string Glob { get; }

        /// <summary>A message has arrived. This does not subscribe.</summary>
        public event Action<Message> OnMessage;
        /// <summary>Messages were dropped.</summary>
        public event Action<Gap> OnGap;

        Dictionary<string, object> Named() => new Dictionary<string, object> { { "pattern", Glob } };

        /// <summary>Subscribes; messages arrive from now on.</summary>
        public Task SubscribeAsync(CancellationToken cancel = default(CancellationToken)) => client.Session.Ask("subscribe", Named(), cancel, ok => subscribed = true);

        /// <summary>Ends the subscription.</summary>
        public Task UnsubscribeAsync(CancellationToken cancel = default(CancellationToken)) => client.Session.Ask("unsubscribe", Named(), cancel, ok => subscribed = false);

        internal void Take(Message message)
        {
            if (subscribed && Decisions.GlobMatches(Glob, message.Channel)) client.Raise(() => OnMessage, message, true);
        }

        internal void TakeGap(Gap gap) => client.Raise(() => OnGap, gap);

        internal void TakeRevoked() => subscribed = false;

        internal void Restore()
        {
            if (subscribed) client.Session.Begin("subscribe", Named(), true);
        }
    }
}
