// The tests of the C# client, without a test framework: a method per test, by reflection. Prints what failed and exits with 1.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Reflection;
using System.Security.Cryptography;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern.Tests
{
    sealed class TestFailure : Exception
    {
        internal TestFailure(string what) : base(what) { }
    }

    static class Check
    {
        internal static void That(bool holds, string what)
        {
            if (!holds) throw new TestFailure(what);
        }

        internal static void Equal(object got, object wanted, string what)
        {
            if (!JsonValue.From(got).Equals(JsonValue.From(wanted))) throw new TestFailure($"{what}: got {JsonValue.From(got)}, not {JsonValue.From(wanted)}");
        }

        /// <summary>Waits for something that must happen, with a generous limit.</summary>
        internal static T Soon<T>(Task<T> task, string what, int limitMs = 10000)
        {
            if (Task.WhenAny(task, Task.Delay(limitMs)).Result != task) throw new TestFailure(what + " hangs");
            return task.GetAwaiter().GetResult();
        }

        /// <summary>The task must end with this error within two seconds: nothing hangs.</summary>
        internal static void Fails(Task task, string code, string what)
        {
            if (Task.WhenAny(task, Task.Delay(2000)).Result != task) throw new TestFailure(what + " hangs");
            var failure = task.Exception?.InnerException as TavernException;
            That(failure != null && failure.Code == code, $"{what}: ended with {failure?.Message ?? task.Status.ToString()}, not {code}");
        }
    }

    static class Program
    {
        static int Main(string[] arguments)
        {
            var failed = 0;
            var count = 0;
            foreach (var type in new[] { typeof(JsonTests), typeof(VectorTests), typeof(SessionTests), typeof(BackendTests) })
                foreach (var test in type.GetMethods(BindingFlags.Static | BindingFlags.NonPublic | BindingFlags.DeclaredOnly))
                {
                    if (test.GetParameters().Length > 0 || test.ReturnType != typeof(void) || test.Name.Contains("<")) continue;
                    if (arguments.Length > 1 && !test.Name.Contains(arguments[1])) continue;
                    VectorTests.Folder = arguments[0];
                    count++;
                    try
                    {
                        test.Invoke(null, null);
                    }
                    catch (TargetInvocationException failure)
                    {
                        failed++;
                        Console.WriteLine($"{type.Name}.{test.Name}: {(failure.InnerException is TestFailure ? failure.InnerException.Message : failure.InnerException.ToString())}");
                    }
                }
            Console.WriteLine($"{count - failed} of {count} tests passed");
            Environment.Exit(failed > 0 || count < 10 && arguments.Length < 2 ? 1 : 0);
            return 0;
        }
    }

    static class JsonTests
    {
        static void WhatIsReadIsWrittenAgain()
        {
            foreach (var text in new[]
            {
                "null", "true", "-0", "12345678901234567890", "1.5e-7", "\"a\\\"\\\\\\n\\u0001ü€\ud83d\ude00\"", "[]", "{}", "[1,[2,{\"a\":null}]]", "{\"a\":{\"b\":[false]}}",
            })
                Check.Equal(JsonValue.Parse(text).ToString(), text, "JSON");
            Check.Equal(JsonValue.Parse(" { \"a\" : [ 1 , 2 ] } \n").ToString(), "{\"a\":[1,2]}", "spaces");
            Check.Equal(JsonValue.Parse("\"\\u00fc\\/\\t\"").AsString(), "ü/\t", "escapes");
        }

        static void WhatIsNoJsonIsRefused()
        {
            var deep = new string('[', 100000);
            foreach (var text in new[]
            {
                "", " ", "nul", "tru", "01", "1.", "-", ".5", "1e", "[1,]", "[", "{\"a\"}", "{a:1}", "{\"a\":1,}", "\"a", "\"\\x\"", "\"\\u12\"", "\"\n\"", "1 2", "NaN", "'a'", deep,
            })
            {
                try
                {
                    JsonValue.Parse(text);
                }
                catch (FormatException)
                {
                    continue;
                }
                throw new TestFailure("accepted: " + text);
            }
        }

        sealed class Move
        {
            public string From;
            public int Piece { get; set; }
            public double? Time;
            public List<string> Tags = new List<string>();
            public Visibility Shown;
        }

        static void ValuesBecomeObjectsAndBack()
        {
            var move = JsonValue.Parse("{\"from\":\"e2\",\"piece\":3,\"tags\":[\"a\"],\"shown\":\"followers_i_follow\",\"other\":1}").To<Move>();
            Check.Equal(move.From, "e2", "a field");
            Check.Equal(move.Piece, 3, "a property");
            Check.Equal(move.Tags, new[] { "a" }, "a list");
            Check.That(move.Time == null && move.Shown == Visibility.FollowersIFollow, "missing and enum");
            Check.Equal(JsonValue.From(new { move.From, n = 1.5, none = (string)null }).ToString(), "{\"From\":\"e2\",\"n\":1.5,\"none\":null}", "written");
            Check.Equal(JsonValue.Parse("{\"a\":1}").To<Dictionary<string, int>>()["a"], 1, "a dictionary");
            Check.Equal(JsonValue.Parse("[1,2]").To<int[]>(), new[] { 1, 2 }, "an array");
            foreach (var wrong in new Func<object>[]
            {
                () => JsonValue.Parse("\"x\"").To<int>(), () => JsonValue.Parse("1.5").To<int>(), () => JsonValue.Parse("300").To<byte>(), () => JsonValue.Parse("[]").To<Move>(),
            })
            {
                try
                {
                    wrong();
                }
                catch (FormatException)
                {
                    continue;
                }
                throw new TestFailure("a wrong value was read");
            }
        }

        sealed class Loop
        {
            public Loop Self;
        }

        static void WhatIsNoJsonIsNotSent()
        {
            var loop = new Loop();
            loop.Self = loop;
            foreach (var wrong in new object[] { double.NaN, DateTime.Now, loop, new Dictionary<int, int> { { 1, 1 } }, (Action)(() => { }) })
            {
                try
                {
                    JsonValue.From(wrong);
                }
                catch (ArgumentException)
                {
                    continue;
                }
                throw new TestFailure("written: " + wrong.GetType());
            }
        }
    }

    /// <summary>All cases of clients/vectors.</summary>
    static class VectorTests
    {
        internal static string Folder;

        static void Each(string name, Action<JsonValue> check)
        {
            var cases = JsonValue.Parse(File.ReadAllText(Path.Combine(Folder, name + ".json")))["cases"].Items;
            Check.That(cases.Count > 0, "no cases in " + name);
            foreach (var one in cases)
            {
                try
                {
                    check(one);
                }
                catch (TestFailure failure)
                {
                    throw new TestFailure($"{failure.Message} in {one}");
                }
            }
        }

        static string Word(Next next) => next == Next.NewToken ? "new_token" : next == Next.UnknownOutcome ? "unknown_outcome" : next.ToString().ToLowerInvariant();

        /// <summary>A client without a connection whose commands wait in its queue.</summary>
        internal static Client Running(Options options = null)
        {
            var client = new Client("http://127.0.0.1:1", options ?? new Options { Dispatcher = run => run() });
            client.Session.WhyEnded = null;
            return client;
        }

        static List<JsonValue> Asked(Client client)
        {
            var all = new List<JsonValue>();
            for (var next = client.Session.NextCommand(); next != null; next = client.Session.NextCommand()) all.Add(JsonValue.Parse(next.Text));
            return all;
        }

        static void AllFilesAreRun()
        {
            var known = new[] { "presence", "party", "status", "replies", "lost", "hello", "close", "backoff", "gaps", "glob", "repeatable", "token", "bounds" };
            foreach (var path in Directory.GetFiles(Folder, "*.json"))
                Check.That(known.Contains(Path.GetFileNameWithoutExtension(path)), path + " is not run");
        }

        static void Bounds()
        {
            var defaults = new Options();
            var own = new Dictionary<string, double>
            {
                { "waiting_commands", Session.MostCommands }, { "unread_events", Dispatcher.Most }, { "kept_changes", Tavern.Presence.MostBuffered },
                { "answer_bytes", Link.MostBytes }, { "command_ms", defaults.CommandTimeout.TotalMilliseconds }, { "connect_ms", defaults.ConnectTimeout.TotalMilliseconds },
                { "bye_ms", Session.ByeMs }, { "token_ms", Session.TokenMs }, { "steady_ms", Session.SteadyMs }, { "stand_in_ms", Session.StandInMs },
                { "second_half_ms", Tavern.Presence.AnnounceMs }, { "failures", Session.RefusalsNew }, { "failures_worked", Session.RefusalsWorked },
            };
            Each("bounds", one => Check.That(own[one["name"].AsString()] == one["value"].AsDouble(), "the bound"));
        }

        static void Glob() => Each("glob", one =>
            Check.Equal(Decisions.GlobMatches(one["pattern"].AsString(), one["name"].AsString()), one["matches"], "matches"));

        static void Backoff() => Each("backoff", one =>
            Check.Equal(Decisions.BackoffMs(one["attempt"].AsLong(), one["chance"].AsDouble(), one["retry_after_ms"].AsLong()), one["wait_ms"], "wait"));

        static void Token() => Each("token", one => Check.Equal(Decisions.RenewAfterMs(one["left_ms"].AsLong()), one["renew_after_ms"], "wait"));

        static void Repeatable() => Each("repeatable", one =>
            Check.Equal(Decisions.Repeatable(one["op"].AsString(), one["members"].Has("message_id")), one["repeatable"], "repeatable"));

        static void Lost() => Each("lost", one =>
            Check.Equal(Word(Decisions.AfterLoss(one["op"].AsString(), one["repeatable"].AsBool(), one["sent"].AsBool())), one["then"], "then"));

        static void Replies() => Each("replies", one =>
        {
            var then = Decisions.AfterReply(one["op"].AsString(), one["repeatable"].AsBool(), one["renews"].AsBool(), one["retries"].AsInt(),
                TavernException.FromWire(one["error"]), out var wait);
            Check.Equal(Word(then), one["then"], "then");
            if (one.Has("wait_ms")) Check.Equal(wait, one["wait_ms"], "wait");
        });

        static void Hello() => Each("hello", one =>
        {
            var refused = TavernException.FromWire(one["error"]);
            Check.Equal(Word(Decisions.AfterHello(refused.Code, one["renews"].AsBool(), one["fresh"].AsBool())), one["then"], "then");
            if (one.Has("wait_ms")) Check.Equal(Decisions.BackoffMs(1, 0, refused.RetryAfterMs ?? 0), one["wait_ms"], "wait");
        });

        static void Close() => Each("close", one =>
        {
            var then = Decisions.AfterClose(one["code"].AsInt(), one["renews"].AsBool(), out var error);
            Check.Equal(Word(then), one["then"], "then");
            Check.Equal(error?.Code, one["error"], "error");
        });

        static void Party() => Each("party", one =>
        {
            var client = Running();
            if (!one["party"].IsNull) client.Party.Set(PartySnapshot.FromWire(one["party"]));
            client.Party.Take(one["event"], one["me"].AsString());
            Check.Equal(client.Party.Current?.ToJson(), one["gives"], "party");
            Check.Equal(Asked(client).Count > 0, one["asks"], "asks");
        });

        static void Statuses() => Each("status", one =>
        {
            var client = Running();
            foreach (var step in one["steps"].Items)
            {
                if (step.Has("statuses")) client.Me.Take("statuses", step);
                else if (step.Has("status")) client.Me.Take("status", step["status"]);
                else client.Me.Forget(step["unfollowed"].AsString());
            }
            Check.Equal(client.Me.Statuses.ToDictionary(user => user.Key, user => user.Value.Json), one["gives"], "statuses");
        });

        static void Presence() => Each("presence", one =>
        {
            var client = Running();
            var channel = client.Channel("game#1");
            channel.Watching = true;
            foreach (var step in one["steps"].Items)
            {
                if (step.Has("snapshot")) channel.Map.Load(step["snapshot"]);
                else if (step.Has("stale")) channel.Map.Lose();
                else channel.Map.Take(step["event"]);
            }
            var gives = one["gives"];
            if (gives.Has("users"))
            {
                Check.Equal(channel.Map.Users.Keys.OrderBy(id => id).ToList(), gives["users"].Members.Keys.OrderBy(id => id).ToList(), "users");
                foreach (var user in gives["users"].Members)
                {
                    var got = channel.Map.Users[user.Key];
                    if (user.Value.Has("clients")) Check.Equal(got.States, user.Value["clients"], user.Key + " clients");
                    if (user.Value.Has("name")) Check.Equal(got.Name, user.Value["name"], user.Key + " name");
                    if (user.Value.Has("leaving")) Check.Equal(got.Leaving, user.Value["leaving"], user.Key + " leaving");
                }
            }
            if (gives.Has("anonymous")) Check.Equal(channel.Map.Anonymous, gives["anonymous"], "anonymous");
            if (gives.Has("count")) Check.Equal(channel.Map.Count, gives["count"], "count");
            if (gives.Has("version")) Check.Equal(channel.Map.Version, gives["version"], "version");
            if (gives.Has("mode")) Check.Equal(channel.Map.Mode, gives["mode"], "mode");
            if (gives.Has("asks")) Check.Equal(Asked(client).Count, gives["asks"], "asks");
        });

        static void Gaps() => Each("gaps", one =>
        {
            var client = Running();
            var channel = client.Channel("game#1");
            var delivered = 0;
            channel.OnMessage += message => delivered++;
            foreach (var step in one["steps"].Items)
            {
                delivered = 0;
                if (step.Has("reply"))
                {
                    channel.HealingEnded();
                    channel.Granted(step["reply"]);
                }
                else if (step.Has("gap")) channel.TakeGap(new Gap { Channel = "game#1" });
                else if (step.Has("restart"))
                {
                    channel.Restore();
                    Check.Equal(Asked(client).Single()["since"], step["since"], "since");
                }
                else
                {
                    var place = step["message"];
                    var message = new Dictionary<string, object> { { "channel", "game#1" }, { "data", 1 } };
                    foreach (var member in place.Members) message[member.Key] = member.Value;
                    channel.Take(Message.FromWire(JsonValue.From(message)), false);
                    Check.Equal(delivered, step["then"].AsString() == "deliver" ? 1 : 0, "delivered");
                    var asked = Asked(client);
                    Check.Equal(asked.Count, step["then"].AsString() == "heal" ? 1 : 0, "asked");
                    if (asked.Count == 1) Check.Equal(asked[0]["since"], step["since"], "since");
                }
            }
            var position = channel.Position;
            Check.Equal(position == null ? null : new { epoch = position.Epoch, offset = position.Offset }, one["position"], "position");
        });
    }

    /// <summary>A WebSocket server that does what the test says, for situations that a real one rarely produces.</summary>
    sealed class FakeServer : IDisposable
    {
        readonly TcpListener listener = new TcpListener(IPAddress.Loopback, 0);
        readonly List<TcpClient> all = new List<TcpClient>();
        /// <summary>What is answered to an op: a body without id, or null for no answer. Others get an empty ok.</summary>
        internal readonly Dictionary<string, string> Replies = new Dictionary<string, string>();
        internal readonly System.Collections.Concurrent.BlockingCollection<FakeConnection> Connections = new System.Collections.Concurrent.BlockingCollection<FakeConnection>();

        internal FakeServer()
        {
            listener.Start();
            new Thread(Accept) { IsBackground = true }.Start();
        }

        internal string Url => $"http://127.0.0.1:{((IPEndPoint)listener.LocalEndpoint).Port}";

        void Accept()
        {
            try
            {
                while (true)
                {
                    var accepted = listener.AcceptTcpClient();
                    lock (all) all.Add(accepted);
                    new Thread(() => Serve(accepted)) { IsBackground = true }.Start();
                }
            }
            catch (SocketException)
            {
                // Disposed.
            }
        }

        void Serve(TcpClient accepted)
        {
            try
            {
                var one = new FakeConnection(accepted.GetStream());
                one.Hello = JsonValue.Parse(one.Read());
                one.Send("{\"id\":\"hello\",\"ok\":{\"session\":\"secret\",\"client\":\"c1\",\"user\":\"ann\",\"node\":\"n1\",\"resumed\":false,\"seq\":0,\"heartbeat_ms\":15000,\"party\":null}}");
                Connections.Add(one);
                while (true)
                {
                    var command = JsonValue.Parse(one.Read());
                    string reply;
                    lock (Replies)
                        if (!Replies.TryGetValue(command["op"].AsString(), out reply)) reply = "\"ok\":{}";
                    one.Commands.Add(command);
                    if (reply != null) one.Send($"{{\"id\":{command["id"]},{reply}}}");
                }
            }
            catch (Exception ended) when (ended is IOException || ended is FormatException || ended is ObjectDisposedException)
            {
                accepted.Close();
            }
        }

        internal FakeConnection Next()
        {
            Check.That(Connections.TryTake(out var connection, 10000), "no connection came");
            return connection;
        }

        public void Dispose()
        {
            listener.Stop();
            lock (all)
                foreach (var one in all) one.Close();
        }
    }

    sealed class FakeConnection
    {
        readonly Stream stream;
        internal JsonValue Hello;
        internal readonly System.Collections.Concurrent.BlockingCollection<JsonValue> Commands = new System.Collections.Concurrent.BlockingCollection<JsonValue>();

        internal FakeConnection(Stream stream)
        {
            this.stream = stream;
            var head = new StringBuilder();
            while (!head.ToString().EndsWith("\r\n\r\n", StringComparison.Ordinal)) head.Append((char)Byte());
            var name = "sec-websocket-key:";
            var key = head.ToString().Split('\n').Select(line => line.Trim()).First(line => line.ToLowerInvariant().StartsWith(name, StringComparison.Ordinal)).Substring(name.Length).Trim();
            using (var sha = SHA1.Create())
            {
                var accept = Convert.ToBase64String(sha.ComputeHash(Encoding.ASCII.GetBytes(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
                Write(Encoding.ASCII.GetBytes($"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"));
            }
        }

        int Byte()
        {
            var one = stream.ReadByte();
            return one >= 0 ? one : throw new IOException("the client has closed");
        }

        internal string Read()
        {
            while (true)
            {
                int kind = Byte() & 15, length = Byte() & 127;
                if (length == 126) length = Byte() << 8 | Byte();
                var mask = new[] { Byte(), Byte(), Byte(), Byte() };
                var content = new byte[length];
                for (var at = 0; at < length; at++) content[at] = (byte)(Byte() ^ mask[at % 4]);
                if (kind == 8) throw new IOException("the client closes");
                if (kind == 1) return Encoding.UTF8.GetString(content);
            }
        }

        void Write(byte[] bytes)
        {
            lock (stream) stream.Write(bytes, 0, bytes.Length);
        }

        internal void Send(string text)
        {
            var content = Encoding.UTF8.GetBytes(text);
            var head = content.Length < 126 ? new[] { (byte)0x81, (byte)content.Length } : new[] { (byte)0x81, (byte)126, (byte)(content.Length >> 8), (byte)content.Length };
            Write(head.Concat(content).ToArray());
        }

        internal void Message(int seq, string data, string client = "b1") => Send(
            $"{{\"seq\":{seq},\"event\":\"message\",\"channel\":\"game#1\",\"data\":{data},\"from\":{{\"user\":\"bob\",\"client\":\"{client}\"}}}}");

        internal void Close(int code) => Write(new byte[] { 0x88, 2, (byte)(code >> 8), (byte)code });

        internal JsonValue Next()
        {
            Check.That(Commands.TryTake(out var command, 10000), "no command came");
            return command;
        }
    }

    static class SessionTests
    {
        static Client Connected(FakeServer server, Options options = null)
        {
            var client = new Client(server.Url, options ?? new Options { User = "ann" });
            Check.Soon(client.ConnectAsync().ContinueWith(done => done.Exception == null), "connect");
            return client;
        }

        static void WhenAPartFailsEveryCallEnds()
        {
            foreach (var part in new[] { "read", "write", "heartbeat", "renew", "prefer" })
                using (var server = new FakeServer())
                {
                    server.Replies["who"] = null;
                    var broken = new ManualResetEventSlim();
                    var client = new Client(server.Url, new Options { GetToken = cancel => Task.FromResult("x.eyJleHAiOjk5OTk5OTk5OTl9.x") });
                    client.Session.PartStarts = started =>
                    {
                        if (started != part) return;
                        broken.Wait();
                        throw new InvalidOperationException("injected");
                    };
                    var closed = new TaskCompletionSource<TavernException>();
                    client.OnClosed += why => closed.TrySetResult(why);
                    Check.Soon(client.ConnectAsync().ContinueWith(done => done.Exception == null), "connect");
                    var pending = client.Channel("game#1").WhoAsync();
                    broken.Set();
                    Check.Fails(pending, ErrorCode.Failed, part + ": the pending call");
                    Check.Equal(Check.Soon(closed.Task, part + ": OnClosed", 2000)?.Code, ErrorCode.Failed, part + ": OnClosed");
                    Check.Fails(client.Channel("game#1").JoinAsync(), ErrorCode.Failed, part + ": a later call");
                    Check.That(client.State == State.Closed, part + ": the state");
                }
        }

        static void WhenConnectingFailsUnexpectedlyConnectEnds()
        {
            foreach (var part in new[] { "run", "GetToken" })
                using (var server = new FakeServer())
                {
                    var client = new Client(server.Url, new Options { GetToken = cancel => Task.FromResult("token") });
                    client.Session.PartStarts = started =>
                    {
                        if (started == part) throw new InvalidOperationException("injected");
                    };
                    Check.Fails(client.ConnectAsync(), ErrorCode.Failed, part);
                }
        }

        static void AFailureWhileAReplyIsReadEndsEveryCall()
        {
            using (var server = new FakeServer())
            {
                var client = Connected(server);
                Check.Fails(client.Session.Ask("join", null, CancellationToken.None, ok => throw new InvalidOperationException("injected")), ErrorCode.Failed, "the call");
            }
        }

        static void AHandlerThatFailsClosesTheClient()
        {
            using (var server = new FakeServer())
            {
                server.Replies["who"] = null;
                var client = Connected(server);
                var connection = server.Next();
                var channel = client.Channel("game#1");
                channel.OnMessage += message => throw new InvalidOperationException("a bug of the app");
                Check.Soon(channel.SubscribeAsync().ContinueWith(done => done.Exception == null), "subscribe");
                var pending = channel.WhoAsync();
                connection.Message(1, "1");
                Check.Fails(pending, ErrorCode.Failed, "the pending call");
            }
        }

        static void ATokenFunctionThatNeverAnswersDoesNotHang()
        {
            using (var server = new FakeServer())
            using (var limit = new CancellationTokenSource(100))
            {
                var client = new Client(server.Url, new Options { GetToken = cancel => new TaskCompletionSource<string>().Task });
                Check.Fails(client.ConnectAsync(limit.Token), ErrorCode.Cancelled, "connect");
            }
        }

        static void ACallEndsWithItsLimitAndTellsWhetherItWasExecuted()
        {
            using (var server = new FakeServer())
            {
                server.Replies["who"] = server.Replies["publish"] = null;
                var client = Connected(server, new Options { User = "ann", CommandTimeout = TimeSpan.FromMilliseconds(200) });
                Check.Fails(client.Channel("game#1").WhoAsync(), ErrorCode.Timeout, "who");
                Check.Fails(client.Channel("game#1").PublishAsync(1), ErrorCode.UnknownOutcome, "publish");
                Check.Fails(client.Channel("game#1").WhoAsync(cancel: new CancellationToken(true)), ErrorCode.Cancelled, "a cancelled call");
                Check.Fails(client.Channel("game#1").PublishAsync(double.NaN), "bad_request", "what is no JSON");
            }
        }

        static void AHostileServerDoesNoHarm()
        {
            using (var server = new FakeServer())
            {
                var client = Connected(server);
                var connection = server.Next();
                foreach (var text in new[] { "[]", "nonsense", "null", "", "{\"a\":" })
                {
                    connection.Send(text);
                    connection = server.Next();
                }
                foreach (var text in new[]
                {
                    "{}", "{\"id\":99,\"ok\":{}}", "{\"id\":\"x\",\"ok\":7}", "{\"event\":\"message\"}", "{\"event\":7}", "{\"seq\":\"x\",\"event\":\"message\"}",
                    "{\"event\":\"presence\",\"channel\":\"x\",\"version\":{}}", "{\"event\":\"party\",\"party_id\":\"x\"}", "{\"event\":\"gap\",\"from\":\"x\"}",
                    "{\"event\":\"status\",\"status\":1}", "{\"event\":\"inbox\",\"message_id\":[]}", "{\"event\":\"revoked\",\"verb\":3}", "{\"party\":5}",
                    "{\"event\":\"statuses\",\"statuses\":[1,null]}", "{\"event\":\"message\",\"channel\":\"game#1\",\"epoch\":1,\"offset\":9,\"at\":99999999999999999}",
                })
                    connection.Send(text);
                Check.Soon(client.Channel("game#1").JoinAsync().ContinueWith(done => done.Exception == null), "join");
            }
        }

        static void ACloseCodeDecides()
        {
            foreach (var code in new[] { 4003, 4000, 4501, 1011 })
                using (var server = new FakeServer())
                {
                    var client = Connected(server);
                    var closed = new TaskCompletionSource<TavernException>();
                    client.OnClosed += why => closed.TrySetResult(why);
                    server.Next().Close(code);
                    if (code == 4501 || code == 1011) server.Next();
                    else Check.Equal(Check.Soon(closed.Task, $"{code}").Code, code == 4000 ? ErrorCode.Superseded : "gone", "code");
                }
        }

        static void EventsAreRaisedOnTheMainThread()
        {
            using (var server = new FakeServer())
            {
                var queue = new EventQueue();
                var client = Connected(server, new Options { User = "ann", Dispatcher = queue.Post });
                var connection = server.Next();
                var got = new List<string>();
                var threads = new HashSet<int>();
                client.Channel("game#1").OnMessage += message =>
                {
                    got.Add(message.Data.ToString());
                    threads.Add(Thread.CurrentThread.ManagedThreadId);
                };
                Check.Soon(client.Channel("game#1").SubscribeAsync().ContinueWith(done => done.Exception == null), "subscribe");
                foreach (var seq in new[] { 1, 2, 2, 1, 3 }) connection.Message(seq, seq.ToString());
                var end = DateTime.UtcNow.AddSeconds(10);
                // As a game does in each frame.
                while (got.Count < 3 && DateTime.UtcNow < end)
                {
                    queue.RunPending();
                    Thread.Sleep(5);
                }
                Check.Equal(got, new[] { "1", "2", "3" }, "messages");
                Check.That(threads.SetEquals(new[] { Thread.CurrentThread.ManagedThreadId }), "the thread");
            }
        }

        static void OwnMessagesAreLeftOutOnRequest()
        {
            var client = VectorTests.Running(new Options { Dispatcher = run => run(), Echo = false });
            client.Session.Hello = JsonValue.Parse("{\"client\":\"c1\"}");
            var got = new List<string>();
            var channel = client.Channel("game#1");
            channel.OnMessage += message => got.Add(message.Data.ToString());
            channel.Granted(JsonValue.Parse("{}"));
            client.TakeEvent(JsonValue.Parse("{\"event\":\"message\",\"channel\":\"game#1\",\"data\":1,\"from\":{\"client\":\"c1\"}}"));
            client.TakeEvent(JsonValue.Parse("{\"event\":\"message\",\"channel\":\"game#1\",\"data\":2,\"from\":{\"client\":\"c2\"}}"));
            Check.Equal(got, new[] { "2" }, "messages");
        }

        static void ASlowAppLosesEventsAndIsTold()
        {
            var waiting = new List<Action>();
            var client = VectorTests.Running(new Options { Dispatcher = waiting.Add });
            int received = 0, dropped = 0;
            var channel = client.Channel("game#1");
            channel.Granted(JsonValue.Parse("{}"));
            channel.OnMessage += message => received++;
            client.OnGap += gap => dropped += gap.Overflow;
            var one = JsonValue.Parse("{\"event\":\"message\",\"channel\":\"game#1\",\"data\":1}");
            for (var number = 0; number < Dispatcher.Most + 100; number++) client.TakeEvent(one);
            for (var at = 0; at < waiting.Count; at++) waiting[at]();
            Check.That(dropped > 0 && dropped + received == Dispatcher.Most + 100, $"{dropped} were dropped and {received} received");
        }

        static void AUserWhoComesOrGoesIsOneChange()
        {
            var client = VectorTests.Running();
            var map = client.Channel("game#1").Map;
            map.Load(JsonValue.Parse("{\"version\":1,\"count\":0,\"users\":[]}"));
            var changes = new System.Collections.Concurrent.BlockingCollection<int>();
            map.OnChange += changed => changes.Add(changed.Count);
            Action<string> Take = text =>
            {
                lock (client.Session.Gate) map.Take(JsonValue.Parse(text));
            };
            Action<int> Expect = count =>
            {
                Check.That(changes.TryTake(out var got, 10000), "no change came");
                Check.Equal(got, count, "count");
            };
            Take("{\"event\":\"user_online\",\"version\":2,\"user\":\"bob\"}");
            Take("{\"event\":\"client_online\",\"version\":3,\"user\":\"bob\",\"client\":\"b1\",\"state\":1}");
            Expect(1);
            Take("{\"event\":\"client_offline\",\"version\":4,\"user\":\"bob\",\"client\":\"b1\",\"explicit\":true}");
            Take("{\"event\":\"user_offline\",\"version\":5,\"user\":\"bob\"}");
            Expect(0);
            // Without the second event the change is told anyway.
            Take("{\"event\":\"user_online\",\"version\":6,\"user\":\"bob\"}");
            Expect(1);
            Check.Equal(changes.Count, 0, "changes");
        }

        static void AServerThatHangsIsLeftForTheNextOne()
        {
            var hanging = new TcpListener(IPAddress.Loopback, 0);
            hanging.Start();
            using (var server = new FakeServer())
            {
                var options = new Options { User = "ann", MoreUrls = new[] { server.Url }, ConnectTimeout = TimeSpan.FromMilliseconds(100) };
                options.Transports = new[] { Transport.WebSocket };
                var client = new Client($"http://127.0.0.1:{((IPEndPoint)hanging.LocalEndpoint).Port}", options);
                Check.Soon(client.ConnectAsync().ContinueWith(done => done.Exception == null), "connect");
                Check.Equal(client.State.ToString(), "Open", "the state");
            }
            hanging.Stop();
        }

        static void WhatIsClosedConnectsAgainAndRestores()
        {
            using (var server = new FakeServer())
            {
                var client = Connected(server);
                server.Next();
                Check.Soon(client.Channel("game#1").SubscribeAsync().ContinueWith(done => done.Exception == null), "subscribe");
                Check.Soon(client.CloseAsync().ContinueWith(done => true), "close");
                Check.Fails(client.Channel("game#1").JoinAsync(), ErrorCode.Closed, "join");
                Check.Soon(client.ConnectAsync().ContinueWith(done => done.Exception == null), "connect");
                var again = server.Next();
                Check.That(!again.Hello.Has("session"), "the session is new");
                Check.Equal(again.Next()["op"], "subscribe", "op");
            }
        }

        static void OptionsAreChecked()
        {
            foreach (var url in new[] { "ftp://example.org", "http://", "http://user:secret@example.org", "http://example.org/?token=x", "" })
            {
                try
                {
                    new Client(url);
                }
                catch (ArgumentException)
                {
                    continue;
                }
                throw new TestFailure(url + " is accepted");
            }
            try
            {
                new Client("http://example.org", new Options { User = "ann", Token = "x" });
                throw new TestFailure("two credentials are accepted");
            }
            catch (ArgumentException)
            {
                // As it should be.
            }
        }
    }

    static class BackendTests
    {
        static void ASignedTokenHasItsClaims()
        {
            var token = Backend.SignToken("secret", "ann", TimeSpan.FromMinutes(1), new Dictionary<string, string[]> { { "game#*", new[] { "join" } } }, "Ann");
            var left = Decisions.LeftMs(token);
            Check.That(left > 50000 && left <= 60000, $"{left} ms are left");
            Check.That(!token.Contains("=") && token.Split('.').Length == 3, token);
        }

        // The example of the Standard Webhooks specification.
        static void AWebhookIsVerified()
        {
            const string secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id = "msg_p5jXN8AQM9LWM0D4loKWxJek", body = "{\"test\": 2432232314}";
            const string signatures = "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
            const long now = 1614265330;
            Check.That(Backend.VerifyWebhook(secret, id, "1614265330", signatures, body, now), "valid");
            Check.That(!Backend.VerifyWebhook(secret, id, "1614265330", signatures, "{}", now), "another body");
            Check.That(!Backend.VerifyWebhook(secret, id, "1614265330", signatures, body, now + 301), "too old");
            Check.That(!Backend.VerifyWebhook(secret, id, "1614265330", signatures, body, now - 301), "too new");
            Check.That(!Backend.VerifyWebhook("whsec_AAAA", id, "1614265330", signatures, body, now), "another secret");
            Check.That(!Backend.VerifyWebhook(secret, id, "x", "", body, now), "unsigned");
        }

        static void ARefusalAndNoServerAreToldApart()
        {
            using (var backend = new Backend("http://127.0.0.1:1", "key"))
                Check.Fails(backend.PublishAsync("game#1", 1), ErrorCode.Unreachable, "no server");
        }
    }
}
