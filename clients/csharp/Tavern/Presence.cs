using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;

namespace Tavern
{
    /// <summary>One user in a presence map.</summary>
    public sealed class PresentUser
    {
        internal readonly Dictionary<string, JsonValue> States = new Dictionary<string, JsonValue>();

        internal PresentUser(string user)
        {
            User = user;
        }

        public string User { get; }
        /// <summary>The display name, or null.</summary>
        public string Name { get; internal set; }
        /// <summary>The state of each client, by its id.</summary>
        public IReadOnlyDictionary<string, JsonValue> Clients => States;
        /// <summary>Lost, and may still return.</summary>
        public bool Leaving { get; internal set; }
        /// <summary>The state of one of the clients; null without clients.</summary>
        public JsonValue State => States.Values.LastOrDefault();

        internal PresentUser Copy()
        {
            var copy = new PresentUser(User) { Name = Name, Leaving = Leaving };
            foreach (var client in States) copy.States[client.Key] = client.Value;
            return copy;
        }
    }

    /// <summary>The live map of who is in a channel: a snapshot, and every change since. An event that does not apply asks for a new snapshot and changes
    /// nothing.</summary>
    public sealed class Presence
    {
        // The most changes that are kept while a snapshot is awaited; how long a change waits for the event that belongs to it.
        internal const int MostBuffered = 4096, AnnounceMs = 50;
        readonly Client client;
        readonly Channel channel;
        readonly Dictionary<string, PresentUser> users = new Dictionary<string, PresentUser>();
        readonly List<JsonValue> buffered = new List<JsonValue>();
        internal readonly Dictionary<string, JsonValue> Anonymous = new Dictionary<string, JsonValue>();
        internal bool Synced;
        long version;
        int count;
        string mode = "full";
        Timer announce;

        internal Presence(Client client, Channel channel)
        {
            this.client = client;
            this.channel = channel;
        }

        /// <summary>The map has changed.</summary>
        public event Action<Presence> OnChange;

        /// <summary>A copy of the users who are present, by id. Anonymous users are only counted; in large channels ("counts" mode) so is everybody whom
        /// this user does not follow.</summary>
        public IReadOnlyDictionary<string, PresentUser> Users
        {
            get { lock (client.Session.Gate) return users.ToDictionary(user => user.Key, user => user.Value.Copy()); }
        }

        /// <summary>The number of users, anonymous ones included.</summary>
        public int Count
        {
            get { lock (client.Session.Gate) return count; }
        }

        /// <summary>"full", "coalesced" or "counts".</summary>
        public string Mode
        {
            get { lock (client.Session.Gate) return mode; }
        }

        /// <summary>Grows with each change.</summary>
        public long Version
        {
            get { lock (client.Session.Gate) return version; }
        }

        // ---- called under the lock

        /// <summary>Replaces the map by a snapshot.</summary>
        internal void Load(JsonValue members)
        {
            // Older than the changes that have arrived since.
            if (Synced && members["version"].AsLong() < version) return;
            version = members["version"].AsLong();
            count = members["count"].AsInt();
            users.Clear();
            Anonymous.Clear();
            if (members["users"].Kind != JsonKind.Array) mode = "counts";
            else if (mode == "counts") mode = "coalesced";
            foreach (var member in members["users"].Items)
            {
                var id = member["user"].AsString();
                var user = new PresentUser(id) { Name = member["name"].AsString(), Leaving = member["leaving"].AsBool() };
                foreach (var one in member["clients"].Items)
                    (id == null ? Anonymous : user.States)[one["client"].AsString("")] = one["state"];
                if (id != null) users[id] = user;
            }
            Synced = true;
            var early = buffered.ToArray();
            buffered.Clear();
            Changed();
            foreach (var change in early) Take(change);
        }

        /// <summary>Marks the map as stale: asks for a snapshot once, and keeps changes until that arrives.</summary>
        internal void Lose()
        {
            if (!Synced) return;
            Synced = false;
            channel.Reload();
        }

        internal void Take(JsonValue change)
        {
            if (!Synced)
            {
                if (buffered.Count < MostBuffered) buffered.Add(change);
                return;
            }
            var kind = change["event"].AsString();
            var next = change["version"].AsLong();
            if (kind == "presence_mode")
            {
                TakeMode(change["mode"].AsString("full"), next);
                return;
            }
            if (next <= version) return;
            // The version of an empty channel may jump.
            if (change["from_version"].AsLong(next - 1) > version && count > 0)
            {
                buffered.Clear();
                buffered.Add(change);
                Lose();
                return;
            }
            if (kind == "presence") TakeDifference(change);
            else TakeSingle(kind, change);
            version = next;
            if (MoreFollows(kind, change)) ChangedSoon();
            else Changed();
        }

        void TakeMode(string given, long at)
        {
            if (at < version) return;
            var leftCounts = mode == "counts" && given != "counts";
            mode = given;
            if (mode == "counts")
            {
                // Most users are not reported any more, so their departure would be missed.
                users.Clear();
                Anonymous.Clear();
            }
            Changed();
            if (leftCounts || at > version) Lose();
        }

        void TakeSingle(string kind, JsonValue change)
        {
            string id = change["user"].AsString(), one = change["client"].AsString();
            if (kind == "user_online") count++;
            if (kind == "user_offline") count--;
            if (id == null)
            {
                TakeAnonymous(kind != "client_offline" && kind != "user_offline", one, change["state"]);
                return;
            }
            if (kind == "user_offline")
            {
                users.Remove(id);
                return;
            }
            var user = UserOf(id, false);
            if (kind == "user_online") user.Name = change["name"].AsString();
            if (one == null) return;
            if (kind == "client_online")
            {
                user.Leaving = false;
                user.States[one] = change["state"];
            }
            else if (kind == "client_updated" && user.States.ContainsKey(one)) user.States[one] = change["state"];
            else if (kind == "client_offline")
            {
                user.States.Remove(one);
                user.Leaving = user.States.Count == 0;
            }
        }

        PresentUser UserOf(string id, bool leaving)
        {
            if (!users.TryGetValue(id, out var user)) users[id] = user = new PresentUser(id) { Leaving = leaving };
            return user;
        }

        void TakeAnonymous(bool present, string one, JsonValue state)
        {
            // A hidden user is only counted.
            if (one == null) return;
            if (present) Anonymous[one] = state;
            else Anonymous.Remove(one);
        }

        void TakeDifference(JsonValue change)
        {
            foreach (var gone in change["left"].Items)
            {
                string id = gone["user"].AsString(), one = gone["client"].AsString();
                if (id == null) TakeAnonymous(false, one, null);
                else if (one == null) users.Remove(id);
                else if (users.TryGetValue(id, out var user))
                {
                    user.States.Remove(one);
                    user.Leaving = user.States.Count == 0;
                }
            }
            foreach (var entry in change["joined"].Items.Concat(change["updated"].Items))
            {
                string id = entry["user"].AsString(), one = entry["client"].AsString();
                if (id == null)
                {
                    TakeAnonymous(true, one, entry["state"]);
                    continue;
                }
                var user = UserOf(id, one == null);
                if (one == null) continue;
                user.Leaving = false;
                user.States[one] = entry["state"];
            }
            count = change["count"].AsInt();
        }

        /// <summary>Whether another event about the same user follows at once.</summary>
        bool MoreFollows(string kind, JsonValue change)
        {
            if (kind == "user_online") return true;
            return kind == "client_offline" && change["explicit"].AsBool() && change["user"].AsString() is string id &&
                users.TryGetValue(id, out var user) && user.States.Count == 0;
        }

        void Changed()
        {
            announce?.Dispose();
            announce = null;
            client.Raise(() => OnChange, this, true);
        }

        /// <summary>Waits for the event that belongs to this one, so that the app hears of a user who comes or goes once.</summary>
        void ChangedSoon()
        {
            announce?.Dispose();
            Timer mine = null;
            mine = announce = new Timer(ignored =>
            {
                lock (client.Session.Gate)
                    if (announce == mine && mine != null) Changed();
            }, null, Timeout.Infinite, Timeout.Infinite);
            mine.Change(AnnounceMs, Timeout.Infinite);
        }
    }
}
