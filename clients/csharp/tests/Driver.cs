// The C# client as an actor of the shared scenarios (clients/scenarios): JSON lines in, JSON lines out. Contains no checks.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern.Scenarios
{
    static class Driver
    {
        static readonly object Output = new object();
        static readonly HashSet<string> Watched = new HashSet<string>();
        static readonly Dictionary<long, TaskCompletionSource<string>> Asked = new Dictionary<long, TaskCompletionSource<string>>();
        static Client client;

        static void Write(object line)
        {
            lock (Output)
            {
                Console.Out.WriteLine(JsonValue.From(line).ToString());
                Console.Out.Flush();
            }
        }

        static void Emit(string kind, params object[] members)
        {
            var shown = Map(members);
            shown["type"] = kind;
            Write(new { @event = shown });
        }

        static Dictionary<string, object> Map(params object[] members)
        {
            var map = new Dictionary<string, object>();
            for (var at = 0; at < members.Length; at += 2) map[(string)members[at]] = members[at + 1];
            return map;
        }

        static void Main()
        {
            Console.SetOut(new System.IO.StreamWriter(Console.OpenStandardOutput(), new System.Text.UTF8Encoding(false), 1 << 16));
            var input = new System.IO.StreamReader(Console.OpenStandardInput(), new System.Text.UTF8Encoding(false));
            for (var line = input.ReadLine(); line != null; line = input.ReadLine())
            {
                var command = JsonValue.Parse(line);
                if (command.Has("answer"))
                {
                    TaskCompletionSource<string> asked;
                    lock (Asked) asked = Asked[command["answer"].AsLong()];
                    if (command.Has("error")) asked.SetException(new InvalidOperationException(command["error"].AsString()));
                    else asked.SetResult(command["token"].AsString());
                    continue;
                }
                // Runs up to its first wait, so commands are sent in the order of the lines.
                _ = Answer(command);
            }
            // The session is not ended.
            Environment.Exit(0);
        }

        static async Task Answer(JsonValue command)
        {
            var id = command["id"].AsLong();
            try
            {
                var ok = await Do(command);
                Write(Map("id", id, "ok", ok ?? new Dictionary<string, object>()));
            }
            catch (TavernException refused)
            {
                Write(Map("id", id, "error", new { code = refused.Code, message = refused.Message }));
            }
            catch (Exception failure)
            {
                Write(Map("id", id, "error", new { code = "driver", message = failure.ToString() }));
            }
        }

        static async Task<string> Token(CancellationToken cancel)
        {
            var answer = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
            long number;
            lock (Asked)
            {
                number = Asked.Count + 1;
                Asked[number] = answer;
            }
            Write(new { ask = "token", n = number });
            return await answer.Task;
        }

        static void Begin(JsonValue command)
        {
            var options = new Options { User = command["user"].AsString() };
            if (command.Has("transports"))
                options.Transports = command["transports"].Items.Select(one => one.To<Transport>()).ToList();
            if (command["tokens"].AsBool()) options.GetToken = Token;
            if (command.Has("resume")) options.Resume = new Ticket(command["resume"]["session"].AsString(), command["resume"]["seq"].AsLong());
            if (command["options"].Has("echo")) options.Echo = command["options"]["echo"].AsBool();
            if (command["options"].Has("command_timeout_ms")) options.CommandTimeout = TimeSpan.FromMilliseconds(command["options"]["command_timeout_ms"].AsInt());
            if (command["options"].Has("connect_timeout_ms")) options.ConnectTimeout = TimeSpan.FromMilliseconds(command["options"]["connect_timeout_ms"].AsInt());
            if (Environment.GetEnvironmentVariable("TAVERN_DEBUG") != null) options.Debug = line => Console.Error.WriteLine(line);
            client = new Client(command["url"].AsString(), options);
            client.OnOpen += () => Emit("open");
            client.OnResumed += () => Emit("resumed");
            client.OnReset += failed => Emit("reset");
            client.OnReconnecting += why => Emit("reconnecting");
            client.OnClosing += after => Emit("closing");
            client.OnClosed += why =>
            {
                if (why?.Code == ErrorCode.Superseded) Emit("superseded");
                if (why == null) Emit("closed");
                else Emit("closed", "code", why.Code);
            };
            client.OnError += why => Emit("error", "code", (why as TavernException)?.Code ?? "failed");
            client.OnGap += gap =>
            {
                if (gap.Channel != null) Emit("gap", "channel", gap.Channel);
                else Emit("gap", "from", gap.From, "to", gap.To);
            };
            client.OnRevoked += revoked =>
            {
                if (revoked.Channel != null) Emit("revoked", "verb", revoked.Verb, "channel", revoked.Channel);
                else Emit("revoked", "verb", revoked.Verb, "pattern", revoked.Pattern);
            };
            client.OnEvent += frame =>
            {
                var kind = frame["event"].AsString();
                if (kind == "status" || kind == "inbox" || kind == "party")
                    Emit(kind, frame.Members.Where(one => one.Key != "event" && one.Key != "seq").SelectMany(one => new object[] { one.Key, one.Value }).ToArray());
            };
            client.Party.OnSay += message =>
                Emit("party", "cmd", "say", "data", message.Data, "uid", message.User, "from", new { user = message.User });
        }

        static async Task<object> Do(JsonValue command)
        {
            var what = command["do"].AsString();
            if (what == "connect")
            {
                if (command.Has("url")) Begin(command);
                await client.ConnectAsync();
                return null;
            }
            if (command.Has("pattern"))
            {
                await InPattern(client.Pattern(command["pattern"].AsString()), what);
                return null;
            }
            var users = command["users"].Items.Select(one => one.AsString());
            switch (what)
            {
                case "suspend": await client.SuspendAsync(); return null;
                case "close": await client.CloseAsync(); return null;
                case "ticket": return new { session = client.Ticket?.Session, seq = client.Ticket?.Seq ?? 0 };
                case "state":
                    return new
                    {
                        state = client.State.ToString().ToLowerInvariant(), transport = client.Transport?.ToString().ToLowerInvariant(), user = client.Me.User,
                        client = client.Me.ClientId, node = client.Node,
                    };
                case "status": return new { statuses = (await client.Me.StatusAsync(users)).Select(one => one.Json).ToList() };
                case "follow": await client.Me.FollowAsync(command["user"].AsString()); return null;
                case "unfollow": await client.Me.UnfollowAsync(command["user"].AsString()); return null;
                case "following": return new { users = await client.Me.FollowingAsync() };
                case "followers": return new { users = await client.Me.FollowersAsync() };
                case "visibility": await client.Me.SetVisibilityAsync(command["value"].To<Visibility>()); return null;
                case "party":
                    var own = new[] { "id", "do", "cmd" };
                    var members = command.Members.Where(one => !own.Contains(one.Key)).ToDictionary(one => one.Key, one => (object)one.Value);
                    return await client.Party.CommandAsync(command["cmd"].AsString(), members);
                case "party_current": return Map("party", client.Party.Current?.ToJson());
                default: return await InChannel(client.Channel(command["channel"].AsString()), what, command);
            }
        }

        static Task InPattern(Pattern pattern, string what)
        {
            if (what == "unsubscribe") return pattern.UnsubscribeAsync();
            pattern.OnMessage += Show;
            return pattern.SubscribeAsync();
        }

        static async Task<object> InChannel(Channel channel, string what, JsonValue command)
        {
            switch (what)
            {
                case "subscribe": await Subscribe(channel, command); return null;
                case "unsubscribe": await channel.UnsubscribeAsync(); return null;
                case "publish":
                    var published = await channel.PublishAsync(command["data"], command["message_id"].AsString(), command["retain"].AsBool());
                    var ok = Map("receivers", published.Receivers, "duplicate", published.Duplicate);
                    if (published.Position != null)
                    {
                        ok["epoch"] = published.Position.Epoch;
                        ok["offset"] = published.Position.Offset;
                    }
                    return ok;
                case "history":
                    return await channel.HistoryAsync(Number(command, "after"), Number(command, "before"), (int?)Number(command, "limit"));
                case "position":
                    var position = channel.Position;
                    return position == null ? null : Map("epoch", position.Epoch, "offset", position.Offset);
                case "burst": await Burst(channel, command["from"].AsInt(), command["count"].AsInt()); return null;
                case "join": await channel.JoinAsync(command["state"]); return null;
                case "update": await channel.UpdateAsync(command["state"]); return null;
                case "leave": await channel.LeaveAsync(); return null;
                case "who": return await channel.WhoAsync();
                case "presence":
                    var presence = await channel.PresenceAsync();
                    var users = presence.Users.ToDictionary(one => one.Key, one => new { name = one.Value.Name, clients = one.Value.States });
                    return new { users, count = presence.Count, mode = presence.Mode };
                default: throw new ArgumentException("unknown command " + what);
            }
        }

        static long? Number(JsonValue command, string name) => command.Has(name) ? command[name].AsLong() : (long?)null;

        static async Task Burst(Channel channel, int first, int count)
        {
            var slots = new SemaphoreSlim(64);
            var all = new List<Task>();
            for (var number = first; number < first + count; number++)
            {
                await slots.WaitAsync();
                all.Add(channel.PublishAsync(number).ContinueWith(done =>
                {
                    slots.Release();
                    done.GetAwaiter().GetResult();
                }, TaskScheduler.Default));
            }
            await Task.WhenAll(all);
        }

        static void Show(Message message) =>
            Emit("message", "channel", message.Channel, "data", message.Data, "from", new { user = message.User, client = message.Client });

        static async Task Subscribe(Channel channel, JsonValue command)
        {
            if (Watched.Add(channel.Name))
            {
                channel.OnMessage += Show;
                channel.OnRecovered += complete => Emit("recovered", "channel", channel.Name, "recovered", complete);
            }
            if (command["presence"].AsBool())
            {
                var presence = await channel.PresenceAsync();
                presence.OnChange += map => Emit("presence", "channel", channel.Name);
                return;
            }
            var since = command["since"];
            var position = since.IsNull ? null : new Position(since["epoch"].AsLong(), since["offset"].AsLong());
            await channel.SubscribeAsync((int?)Number(command, "last"), position);
        }
    }
}
