using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>A member of a party.</summary>
    public sealed class PartyMember
    {
        public string User { get; internal set; }
        /// <summary>The display name, or null.</summary>
        public string Name { get; internal set; }
        public bool Online { get; internal set; }
        /// <summary>Milliseconds since the epoch.</summary>
        public long Since { get; internal set; }
    }

    /// <summary>An open invite.</summary>
    public sealed class PartyInvite
    {
        public string User { get; internal set; }
        public string By { get; internal set; }
        /// <summary>Milliseconds since the epoch.</summary>
        public long ExpiresAt { get; internal set; }
    }

    /// <summary>A party as its members see it. The first member leads.</summary>
    public sealed class PartySnapshot
    {
        public long Id { get; private set; }
        public long Version { get; private set; }
        public IReadOnlyList<PartyMember> Members { get; private set; }
        public IReadOnlyList<PartyInvite> Pending { get; private set; }
        /// <summary>"forming", "idle", "gathering" or "queued".</summary>
        public string State { get; private set; }
        /// <summary>The ticket, while the party is gathering or queued.</summary>
        public long? GoId { get; private set; }
        public JsonValue Data { get; private set; }
        /// <summary>The id of the user who leads.</summary>
        public string Leader => Members.Count == 0 ? null : Members[0].User;

        internal static PartySnapshot FromWire(JsonValue party) => new PartySnapshot
        {
            Id = party["party_id"].AsLong(), Version = party["version"].AsLong(), State = party["state"].AsString("idle"), Data = party["data"],
            GoId = party["go_id"].WholeNumber,
            Members = party["members"].Items.Select(one => new PartyMember
            {
                User = one["user"].AsString(""), Name = one["name"].AsString(), Online = one["online"].AsBool(), Since = one["since"].AsLong(),
            }).ToList(),
            Pending = party["pending"].Items.Select(one => new PartyInvite
            {
                User = one["user"].AsString(""), By = one["by"].AsString(""), ExpiresAt = one["expires_at"].AsLong(),
            }).ToList(),
        };

        /// <summary>The party in the shape of the protocol.</summary>
        public JsonValue ToJson()
        {
            var party = new Dictionary<string, object>
            {
                { "party_id", Id }, { "version", Version }, { "state", State }, { "data", Data },
                { "members", Members.Select(one => new { user = one.User, name = one.Name, online = one.Online, since = one.Since }).ToList() },
                { "pending", Pending.Select(one => new { user = one.User, by = one.By, expires_at = one.ExpiresAt }).ToList() },
            };
            if (GoId != null) party["go_id"] = GoId;
            return JsonValue.From(party);
        }

        /// <summary>The party after an event, and whether that says everything: otherwise the party must be read again.</summary>
        internal static PartySnapshot Fold(PartySnapshot party, JsonValue change, string me, out bool complete)
        {
            string cmd = change["cmd"].AsString(""), user = change["uid"].AsString();
            complete = true;
            if (party == null || change["party_id"].AsLong() != party.Id)
            {
                // Events of another party do not change this one.
                complete = Array.IndexOf(new[] { "invite", "invite_cancel", "kick", "disband", "decline", "leave" }, cmd) >= 0;
                return party;
            }
            var version = change["version"].AsLong();
            if (version <= party.Version) return party;
            if (cmd == "kick" || cmd == "disband" || (cmd == "leave" && me != null && user == me)) return null;
            var after = (PartySnapshot)party.MemberwiseClone();
            complete = version == party.Version + 1 && after.Apply(cmd, user, change);
            if (!complete) return party;
            after.Version = version;
            // Without a ticket, the state depends on the number of members.
            if (after.State == "forming" || after.State == "idle") after.State = after.Members.Count < 2 ? "forming" : "idle";
            return after;
        }

        /// <summary>Applies one event; false: it does not say enough.</summary>
        bool Apply(string cmd, string user, JsonValue change)
        {
            switch (cmd)
            {
                case "join": case "accept":
                    // For a user without a display name the server sends the id.
                    var name = change["user"].AsString() == user ? null : change["user"].AsString();
                    Members = Members.Concat(new[] { new PartyMember { User = user, Name = name, Online = true, Since = change["ts"].AsLong() } }).ToList();
                    Pending = Pending.Where(one => one.User != user).ToList();
                    return true;
                case "invited":
                    var invite = new PartyInvite { User = change["invitee"].AsString(""), By = user, ExpiresAt = change["expires_at"].AsLong() };
                    Pending = Pending.Concat(new[] { invite }).ToList();
                    return true;
                case "decline": case "uninvited":
                    Pending = Pending.Where(one => one.User != user).ToList();
                    return true;
                case "leave":
                    Members = Members.Where(one => one.User != user).ToList();
                    return true;
                case "leader":
                    Members = Members.OrderBy(one => one.User == user ? 0 : 1).ToList();
                    return Leader == user;
                case "data":
                    Data = change["data"];
                    return true;
                case "online": case "offline":
                    var known = Members.Any(one => one.User == user);
                    Members = Members.Select(one => one.User != user ? one : new PartyMember
                    {
                        User = one.User, Name = one.Name, Online = cmd == "online", Since = one.Since,
                    }).ToList();
                    return known;
                case "party_go": case "ready":
                    GoId = change["go_id"].WholeNumber;
                    State = change["state"].AsString();
                    return GoId != null && State != null;
                case "party_matched": case "go_failed": case "go_cancel":
                    GoId = null;
                    State = "idle";
                    return true;
                default:
                    // An event of a newer server.
                    return false;
            }
        }
    }

    /// <summary>Says what happened to a party, or to an invite.</summary>
    public sealed class PartyEvent
    {
        internal PartyEvent(JsonValue json)
        {
            Json = json;
        }

        /// <summary>All members of the event.</summary>
        public JsonValue Json { get; }
        /// <summary>What happened: "invite", "join", "leave", …</summary>
        public string Cmd => Json["cmd"].AsString("");
        public long PartyId => Json["party_id"].AsLong();
        /// <summary>The id and the display name of the user whom the event is about.</summary>
        public string UserId => Json["uid"].AsString();
        public string UserName => Json["user"].AsString();
    }

    /// <summary>The party of the user: its commands, and a snapshot that party events keep up to date.</summary>
    public sealed class Party
    {
        readonly Client client;
        PartySnapshot current;
        bool asking;

        internal Party(Client client)
        {
            this.client = client;
        }

        /// <summary>The party has changed; null: the user is in none any more.</summary>
        public event Action<PartySnapshot> OnChange;
        /// <summary>A party event has arrived.</summary>
        public event Action<PartyEvent> OnEvent;
        /// <summary>Somebody invites the user.</summary>
        public event Action<PartyEvent> OnInvite;
        /// <summary>A member says something.</summary>
        public event Action<Message> OnSay;

        /// <summary>The party, or null.</summary>
        public PartySnapshot Current
        {
            get { lock (client.Session.Gate) return current; }
        }

        /// <summary>Reads the party from the server; null: the user is in none.</summary>
        public async Task<PartySnapshot> GetAsync(CancellationToken cancel = default(CancellationToken))
        {
            var party = (await CommandAsync("get", null, cancel).ConfigureAwait(false))["party"];
            return party.IsNull ? null : PartySnapshot.FromWire(party);
        }

        /// <summary>Invites a user and returns the id of the party; without a party this creates one.</summary>
        public async Task<long> InviteAsync(string user, CancellationToken cancel = default(CancellationToken)) =>
            (await Do("invite", "user", user, cancel).ConfigureAwait(false))["party_id"].AsLong();

        /// <summary>Takes an invite back.</summary>
        public Task CancelInviteAsync(string user, CancellationToken cancel = default(CancellationToken)) => Do("cancel_invite", "user", user, cancel);

        /// <summary>Accepts the invite of this party.</summary>
        public Task AcceptAsync(long partyId, CancellationToken cancel = default(CancellationToken)) => Do("accept", "party_id", partyId, cancel);

        /// <summary>Declines the invite of this party.</summary>
        public Task DeclineAsync(long partyId, string message = null, CancellationToken cancel = default(CancellationToken)) =>
            Do("decline", "party_id", partyId, cancel, message);

        /// <summary>Removes a member; for the leader.</summary>
        public Task KickAsync(string user, string message = null, CancellationToken cancel = default(CancellationToken)) => Do("kick", "user", user, cancel, message);

        /// <summary>Leaves the party.</summary>
        public Task LeaveAsync(string message = null, CancellationToken cancel = default(CancellationToken)) => Do("leave", "message", message, cancel);

        /// <summary>Makes another member the leader.</summary>
        public Task PromoteAsync(string user, CancellationToken cancel = default(CancellationToken)) => Do("promote", "user", user, cancel);

        /// <summary>Ends the party; for the leader.</summary>
        public Task DisbandAsync(string message = null, CancellationToken cancel = default(CancellationToken)) => Do("disband", "message", message, cancel);

        /// <summary>Replaces the data of the party, an object; for the leader.</summary>
        public Task SetDataAsync(object data, CancellationToken cancel = default(CancellationToken)) => Do("set_data", "data", data, cancel);

        /// <summary>Creates a ticket for the matchmaker and returns its id; for the leader.</summary>
        public async Task<long> GoAsync(object parameters = null, CancellationToken cancel = default(CancellationToken)) =>
            (await Do("go", "params", parameters, cancel).ConfigureAwait(false))["go_id"].AsLong();

        /// <summary>Cancels the ticket.</summary>
        public Task CancelGoAsync(CancellationToken cancel = default(CancellationToken)) => CommandAsync("cancel_go", null, cancel);

        /// <summary>Confirms that the user is ready for this ticket.</summary>
        public Task ReadyAsync(long goId, CancellationToken cancel = default(CancellationToken)) => Do("ready", "go_id", goId, cancel);

        /// <summary>Blocks the invites of a user.</summary>
        public Task BlockAsync(string user, CancellationToken cancel = default(CancellationToken)) => Do("block", "user", user, cancel);

        /// <summary>Allows the invites of a user again.</summary>
        public Task UnblockAsync(string user, CancellationToken cancel = default(CancellationToken)) => Do("unblock", "user", user, cancel);

        /// <summary>Sends a message to the members. It is not sent again after a lost connection.</summary>
        public Task SayAsync(object data, CancellationToken cancel = default(CancellationToken)) => Do("say", "data", data ?? JsonValue.Null, cancel);

        Task<JsonValue> Do(string cmd, string name, object value, CancellationToken cancel, string message = null) =>
            CommandAsync(cmd, new Dictionary<string, object> { { name, value }, { name == "message" ? "" : "message", message } }, cancel);

        /// <summary>Sends any party command and returns its reply.</summary>
        public async Task<JsonValue> CommandAsync(string cmd, IDictionary<string, object> members, CancellationToken cancel = default(CancellationToken))
        {
            var asked = members == null ? new Dictionary<string, object>() : new Dictionary<string, object>(members);
            asked.Remove("");
            // With a request id the server executes a repeated command once.
            if (cmd != "get" && cmd != "say" && !asked.ContainsKey("rid")) asked["rid"] = Guid.NewGuid().ToString("N");
            try
            {
                return await client.Session.Ask("party." + cmd, asked, cancel, ok =>
                {
                    if (ok.Has("party")) SetSnapshot(ok);
                    else if (cmd != "say" && cmd != "block" && cmd != "unblock") Refresh();
                }).ConfigureAwait(false);
            }
            catch (TavernException refused) when (refused.Party != null)
            {
                lock (client.Session.Gate) Set(refused.Party);
                throw;
            }
        }

        // ---- called under the lock

        internal bool HasCurrent => current != null;

        /// <summary>Without a member `party` the store does not answer: the party is unknown, not gone.</summary>
        internal void SetSnapshot(JsonValue frame)
        {
            if (!frame.Has("party")) return;
            Set(frame["party"].Kind == JsonKind.Object ? PartySnapshot.FromWire(frame["party"]) : null);
        }

        internal void Set(PartySnapshot party)
        {
            // Older than the events that have arrived since.
            if (party != null && current != null && party.Id == current.Id && party.Version < current.Version) return;
            var old = current;
            current = party;
            Changed(old);
        }

        void Changed(PartySnapshot old)
        {
            if (old == current || (old != null && current != null && old.ToJson().Equals(current.ToJson()))) return;
            var now = current;
            client.Raise(() => OnChange, now, true);
        }

        internal void Take(JsonValue change, string me)
        {
            var old = current;
            current = PartySnapshot.Fold(old, change, me, out var complete);
            if (!complete) Refresh();
            var shown = new PartyEvent(change);
            client.Raise(() => OnEvent, shown, true);
            if (shown.Cmd == "invite") client.Raise(() => OnInvite, shown, true);
            Changed(old);
        }

        internal void TakeSaid(Message message) => client.Raise(() => OnSay, message, true);

        /// <summary>Reads the party again; while it is being read, further calls do nothing.</summary>
        internal void Refresh()
        {
            if (asking || client.Session.WhyEnded != null) return;
            asking = true;
            client.Session.Begin("party.get", null, true, SetSnapshot).OnEnd = refused => asking = false;
        }
    }
}
