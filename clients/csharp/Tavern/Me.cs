using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>What a user does in a channel.</summary>
    public sealed class Activity
    {
        public string Name { get; internal set; }
        public string Channel { get; internal set; }
        /// <summary>Milliseconds since the epoch.</summary>
        public long Since { get; internal set; }
    }

    /// <summary>What a user is doing, as far as they show it.</summary>
    public sealed class Status
    {
        /// <summary>The status as the server sent it.</summary>
        public JsonValue Json { get; private set; }
        public string User { get; private set; }
        /// <summary>The display name, or null.</summary>
        public string Name { get; private set; }
        public bool Online { get; private set; }
        /// <summary>Lost, and may still return.</summary>
        public bool Leaving { get; private set; }
        public IReadOnlyList<Activity> Activities { get; private set; }
        public IReadOnlyList<string> Channels { get; private set; }
        /// <summary>When the user was last online, if it is known.</summary>
        public DateTimeOffset? LastSeen { get; private set; }

        internal static Status FromWire(JsonValue status) => new Status
        {
            Json = status, User = status["user"].AsString(""), Name = status["name"].AsString(), Online = status["online"].AsBool(),
            Leaving = status["leaving"].AsBool(), LastSeen = Time.FromWire(status["last_seen"]),
            Channels = status["channels"].Items.Select(one => one.AsString("")).ToList(),
            Activities = status["activities"].Items.Select(one => new Activity
            {
                Name = one["activity"].AsString(""), Channel = one["channel"].AsString(""), Since = one["since"].AsLong(),
            }).ToList(),
        };
    }

    /// <summary>The status of a followed user has changed.</summary>
    public sealed class StatusUpdate
    {
        public Status Status { get; internal set; }
        /// <summary>What happened in Channel, for example "disconnected" or "in_game_channel"; or "none".</summary>
        public string Change { get; internal set; }
        public string Channel { get; internal set; }
    }

    /// <summary>A message to the user. Each is raised once in each client.</summary>
    public sealed class InboxMessage
    {
        public long Id { get; internal set; }
        public JsonValue Data { get; internal set; }
    }

    /// <summary>Who sees the status of a user.</summary>
    public enum Visibility { Everyone, FollowersIFollow, Nobody }

    /// <summary>The user of the client: follows, statuses, visibility and the inbox.</summary>
    public sealed class Me
    {
        readonly Client client;
        readonly Dictionary<string, Status> known = new Dictionary<string, Status>();

        internal Me(Client client)
        {
            this.client = client;
        }

        /// <summary>The status of a followed user has changed.</summary>
        public event Action<StatusUpdate> OnStatus;
        /// <summary>The statuses of all followed users, when a session starts, if <see cref="Options.Statuses"/> asks for them.</summary>
        public event Action<IReadOnlyList<Status>> OnStatuses;
        /// <summary>An inbox message has arrived.</summary>
        public event Action<InboxMessage> OnInbox;

        /// <summary>The id of the user; null: anonymous.</summary>
        public string User
        {
            get { lock (client.Session.Gate) return Name; }
        }

        /// <summary>The public id of this session.</summary>
        public string ClientId
        {
            get { lock (client.Session.Gate) return client.Session.Hello["client"].AsString(); }
        }

        /// <summary>The statuses of followed users, by id: complete with <see cref="Options.Statuses"/>, otherwise those that have changed.</summary>
        public IReadOnlyDictionary<string, Status> Statuses
        {
            get { lock (client.Session.Gate) return new Dictionary<string, Status>(known); }
        }

        static Dictionary<string, object> Of(string user) => new Dictionary<string, object> { { "user", user } };

        /// <summary>Asks for the statuses of up to 100 users, in this order.</summary>
        public async Task<IReadOnlyList<Status>> StatusAsync(IEnumerable<string> users, CancellationToken cancel = default(CancellationToken))
        {
            var asked = new Dictionary<string, object> { { "users", users.ToList() } };
            var ok = await client.Session.Ask("status", asked, cancel).ConfigureAwait(false);
            return ok["statuses"].Items.Select(Status.FromWire).ToList();
        }

        /// <summary>Follows a user.</summary>
        public Task FollowAsync(string user, CancellationToken cancel = default(CancellationToken)) => client.Session.Ask("follow", Of(user), cancel);

        /// <summary>Ends that.</summary>
        public Task UnfollowAsync(string user, CancellationToken cancel = default(CancellationToken)) =>
            client.Session.Ask("unfollow", Of(user), cancel, ok => Forget(user));

        /// <summary>Everybody whom the user follows.</summary>
        public Task<IReadOnlyList<string>> FollowingAsync(CancellationToken cancel = default(CancellationToken)) => Pages("following", cancel);

        /// <summary>Everybody who follows the user.</summary>
        public Task<IReadOnlyList<string>> FollowersAsync(CancellationToken cancel = default(CancellationToken)) => Pages("followers", cancel);

        async Task<IReadOnlyList<string>> Pages(string op, CancellationToken cancel)
        {
            var users = new List<string>();
            string after = null;
            do
            {
                var page = await client.Session.Ask(op, new Dictionary<string, object> { { "after", after } }, cancel).ConfigureAwait(false);
                users.AddRange(page["users"].Items.Select(user => user.AsString("")));
                after = page["next"].AsString();
            } while (after != null);
            return users;
        }

        /// <summary>Chooses who sees the status of the user.</summary>
        public Task SetVisibilityAsync(Visibility value, CancellationToken cancel = default(CancellationToken))
        {
            var word = value == Visibility.Everyone ? "everyone" : value == Visibility.Nobody ? "nobody" : "followers_i_follow";
            return client.Session.Ask("visibility", new Dictionary<string, object> { { "value", word } }, cancel);
        }

        // ---- called under the lock

        internal string Name => client.Session.Hello["user"].AsString();

        internal void Take(string kind, JsonValue frame)
        {
            switch (kind)
            {
                case "status":
                    var status = Status.FromWire(frame["status"]);
                    known[status.User] = status;
                    var update = new StatusUpdate { Status = status, Change = frame["change"].AsString("none"), Channel = frame["channel"].AsString() };
                    client.Raise(() => OnStatus, update, true);
                    break;
                case "statuses":
                    var all = frame["statuses"].Items.Select(Status.FromWire).ToList();
                    known.Clear();
                    foreach (var one in all) known[one.User] = one;
                    client.Raise(() => OnStatuses, all, true);
                    break;
                default:
                    client.Raise(() => OnInbox, new InboxMessage { Id = frame["message_id"].AsLong(), Data = frame["data"] }, true);
                    break;
            }
        }

        internal void Forget(string user) => known.Remove(user);

        /// <summary>Asks for all statuses again: changes were lost.</summary>
        internal void Reload()
        {
            if (client.Session.Settings.Options.Statuses && client.Session.WhyEnded == null)
                client.Session.Begin("hello", new Dictionary<string, object> { { "status", true } }, true);
        }
    }
}
