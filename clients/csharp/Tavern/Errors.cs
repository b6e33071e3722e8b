using System;

namespace Tavern
{
    /// <summary>The codes of the client itself. All other codes are those of the server.</summary>
    public static class ErrorCode
    {
        /// <summary>The client is closed.</summary>
        public const string Closed = "closed";
        /// <summary>Another connection took over the session; do not reconnect.</summary>
        public const string Superseded = "superseded";
        /// <summary>The connection was lost before the reply; the command may have been executed.</summary>
        public const string UnknownOutcome = "unknown_outcome";
        /// <summary>No reply in time.</summary>
        public const string Timeout = "timeout";
        /// <summary>The token of the call was cancelled.</summary>
        public const string Cancelled = "cancelled";
        /// <summary>Nothing answered at the address.</summary>
        public const string Unreachable = "unreachable";
        /// <summary>The client itself failed; create a new one.</summary>
        public const string Failed = "failed";
        /// <summary>The answer is not one of a Tavern server.</summary>
        public const string UnexpectedAnswer = "unexpected_answer";
    }

    /// <summary>A refusal of the server, or an error of the client. <see cref="Code"/> is for programs, the message for people.</summary>
    public sealed class TavernException : Exception
    {
        internal TavernException(string code, string message, Exception cause = null, long? retryAfterMs = null, PartySnapshot party = null)
            : base($"{code}: {message}", cause)
        {
            Code = code;
            RetryAfterMs = retryAfterMs;
            Party = party;
        }

        /// <summary>A code of the server, or one of <see cref="ErrorCode"/>.</summary>
        public string Code { get; }

        /// <summary>How long to wait before the same command is sent again, if the server says so.</summary>
        public long? RetryAfterMs { get; }

        /// <summary>The caller's party, when a party command was refused.</summary>
        public PartySnapshot Party { get; }

        /// <summary>From the `error` member of a reply; any content is tolerated.</summary>
        internal static TavernException FromWire(JsonValue error)
        {
            var wait = error["retry_after_ms"].AsDouble(-1);
            var party = error["party"].Kind == JsonKind.Object ? PartySnapshot.FromWire(error["party"]) : null;
            return new TavernException(error["code"].AsString("internal"), error["message"].AsString("the server gave no reason"), null,
                wait >= 0 && wait < 1e10 ? (long)wait : (long?)null, party);
        }
    }

    /// <summary>The connection has ended. Unsent: the server cannot have received the last command.</summary>
    internal sealed class LinkLost : Exception
    {
        internal LinkLost(string why, int closeCode = 0, bool unsent = false, Exception cause = null) : base(why, cause)
        {
            CloseCode = closeCode;
            Unsent = unsent;
        }

        internal int CloseCode { get; }
        internal bool Unsent { get; }
    }

    /// <summary>Something answered, but not as this transport requires (a proxy, for example): another one may work.</summary>
    internal sealed class LinkRefused : Exception
    {
        internal LinkRefused(string why, Exception cause = null) : base(why, cause) { }
    }
}
