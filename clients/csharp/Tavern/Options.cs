using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>How a session is connected.</summary>
    public enum Transport { WebSocket, Sse, Poll }

    /// <summary>The state of a client's connection.</summary>
    public enum State
    {
        /// <summary>Not started.</summary>
        Idle,
        /// <summary>Not connected; the client tries until it is.</summary>
        Connecting,
        /// <summary>Connected, with an open session.</summary>
        Open,
        /// <summary>Not connected; ConnectAsync resumes the session.</summary>
        Suspended,
        /// <summary>The session has ended; ConnectAsync starts a new one.</summary>
        Closed,
    }

    /// <summary>What resumes a session: its secret and the number of the last event.</summary>
    public sealed class Ticket
    {
        public Ticket(string session, long seq)
        {
            Session = session;
            Seq = seq;
        }

        public string Session { get; }
        public long Seq { get; }
    }

    /// <summary>The options of a client.</summary>
    public sealed class Options
    {
        /// <summary>A token.</summary>
        public string Token { get; set; }

        /// <summary>Returns a token. Called for the first one, shortly before the present one expires, and when the server says that it has expired. If
        /// it fails, it is called again after a delay.</summary>
        public Func<CancellationToken, Task<string>> GetToken { get; set; }

        /// <summary>A name instead of a token, in dev mode.</summary>
        public string User { get; set; }

        /// <summary>Other addresses of the same cluster, tried when one does not answer.</summary>
        public IList<string> MoreUrls { get; set; } = new List<string>();

        /// <summary>The transports to try, in this order.</summary>
        public IList<Transport> Transports { get; set; } = new List<Transport> { Transport.WebSocket, Transport.Sse, Transport.Poll };

        /// <summary>Asks for the statuses of all followed users when a session starts.</summary>
        public bool Statuses { get; set; }

        /// <summary>false leaves out the messages that this client published itself.</summary>
        public bool Echo { get; set; } = true;

        /// <summary>Continues a session that another process suspended; see <see cref="Client.Ticket"/>.</summary>
        public Ticket Resume { get; set; }

        /// <summary>How long a command may take, reconnects included.</summary>
        public TimeSpan CommandTimeout { get; set; } = TimeSpan.FromSeconds(30);

        /// <summary>How long an attempt to connect may take, up to the reply to hello.</summary>
        public TimeSpan ConnectTimeout { get; set; } = TimeSpan.FromSeconds(10);

        /// <summary>Where events are raised: it is given a function to run, soon, and one after the other. Default: the SynchronizationContext of the
        /// thread that creates the client (in Unity the main thread), or the thread pool if there is none.</summary>
        public Action<Action> Dispatcher { get; set; }

        /// <summary>Gets a line for each step of the connection. The lines contain no secrets.</summary>
        public Action<string> Debug { get; set; }
    }

    /// <summary>Runs the events of clients when the app says so, for example in Update() of a MonoBehaviour.</summary>
    public sealed class EventQueue
    {
        readonly Queue<Action> waiting = new Queue<Action>();

        /// <summary>Give this as <see cref="Options.Dispatcher"/>.</summary>
        public void Post(Action run)
        {
            lock (waiting) waiting.Enqueue(run);
        }

        /// <summary>Raises the events that have arrived.</summary>
        public void RunPending()
        {
            for (var left = Count; left > 0; left--)
            {
                Action run;
                lock (waiting) run = waiting.Dequeue();
                run();
            }
        }

        int Count
        {
            get { lock (waiting) return waiting.Count; }
        }
    }

    /// <summary>Where a server is reached. Checked before anything is sent.</summary>
    internal sealed class Address
    {
        internal readonly bool Secure;
        internal readonly string Authority, Path;

        internal Address(string text)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            if (!text.Contains("://")) text = "http://" + text;
            if (!Uri.TryCreate(text, UriKind.Absolute, out var url)) throw new ArgumentException($"{text} is not a URL");
            if (Array.IndexOf(new[] { "http", "https", "ws", "wss" }, url.Scheme) < 0)
                throw new ArgumentException($"{text}: the scheme must be http, https, ws or wss");
            // Not quoted: it may contain a password.
            if (url.Query != "" || url.Fragment != "" || url.UserInfo != "")
                throw new ArgumentException("a URL has only scheme, host, port and path; pass the token in Options");
            if (url.Host == "") throw new ArgumentException($"{text} has no host");
            Secure = url.Scheme == "https" || url.Scheme == "wss";
            Authority = url.IsDefaultPort || url.Port < 0 ? url.Host : $"{url.Host}:{url.Port}";
            Path = url.AbsolutePath.TrimEnd('/');
            if (Path.EndsWith("/v1/connect", StringComparison.Ordinal)) Path = Path.Substring(0, Path.Length - "/v1/connect".Length);
        }

        /// <summary>The URL of a request; the scheme is http or ws.</summary>
        internal Uri Url(string scheme, string path, string query) =>
            new Uri($"{scheme}{(Secure ? "s" : "")}://{Authority}{Path}{path}{(query == "" ? "" : "?" + query)}");
    }

    /// <summary>Checked options.</summary>
    internal sealed class Settings
    {
        internal readonly List<Address> Addresses = new List<Address>();
        internal readonly List<Transport> Transports;
        internal readonly Options Options;

        internal Settings(string url, Options options)
        {
            Options = options;
            Addresses.Add(new Address(url));
            foreach (var more in options.MoreUrls) Addresses.Add(new Address(more));
            var given = (options.Token != null ? 1 : 0) + (options.GetToken != null ? 1 : 0) + (options.User != null ? 1 : 0);
            if (given > 1) throw new ArgumentException("give only one of Token, GetToken and User");
            Transports = new List<Transport>(options.Transports);
            if (Transports.Count == 0) throw new ArgumentException("give at least one transport");
        }

        internal bool Renews => Options.GetToken != null;

        internal void Debug(string line) => Options.Debug?.Invoke(line);
    }
}
