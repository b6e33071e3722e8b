// The decisions of a session, without state: clients/spec.md has the tables, clients/vectors the tests.
using System;
using System.Text;

namespace Tavern
{
    /// <summary>What follows an error.</summary>
    internal enum Next
    {
        /// <summary>Again, after a wait.</summary>
        Retry,
        /// <summary>The command was not executed: again, in the next connection.</summary>
        Reconnect,
        /// <summary>The caller gets the error.</summary>
        Report,
        /// <summary>Sent again, before the commands that wait.</summary>
        Resend,
        /// <summary>It was not sent.</summary>
        Keep,
        /// <summary>Nobody waits for it.</summary>
        Drop,
        /// <summary>The caller gets this error.</summary>
        UnknownOutcome,
        /// <summary>Reconnect with a new token.</summary>
        NewToken,
        Close,
    }

    internal static class Decisions
    {
        internal const int Superseded = 4000, TokenExpired = 4001, StopFirst = 4000, StopLast = 4499;
        const int FirstBackoffMs = 250, MostBackoffMs = 15000;
        const int MostRetries = 5, RetryUnitMs = 125;
        const long RenewEarlyMs = 60000, RenewPauseMs = 500;

        /// <summary>The wait before the nth attempt in a row: random, so that many clients do not come back at once.</summary>
        internal static long BackoffMs(long attempt, double chance, long retryAfterMs)
        {
            long bound = attempt < 7 ? FirstBackoffMs << (int)(attempt - 1) : MostBackoffMs;
            return (long)(chance * bound) + retryAfterMs;
        }

        /// <summary>The time until a token with this much time left is replaced.</summary>
        internal static long RenewAfterMs(long leftMs) => Math.Max(RenewPauseMs, leftMs - Math.Min(RenewEarlyMs, leftMs / 4));

        /// <summary>Whether a command may be executed twice without harm.</summary>
        internal static bool Repeatable(string op, bool hasMessageId) =>
            op == "publish" ? hasMessageId : op != "bye" && op != "party.say";

        /// <summary>A command whose reply is an error, after so many retries.</summary>
        internal static Next AfterReply(string op, bool repeatable, bool renews, int retries, TavernException refused, out long waitMs)
        {
            waitMs = refused.RetryAfterMs ?? RetryUnitMs << (retries + 1);
            if (retries >= MostRetries || op == "bye") return Next.Report;
            var ended = refused.Code == "gone" || (refused.Code == "unauthenticated" && renews);
            if (ended && op != "hello") return Next.Reconnect;
            // The limits of parties are for the app to see.
            var limited = refused.Code == "rate_limited" && !op.StartsWith("party.", StringComparison.Ordinal);
            return repeatable && (limited || refused.Code == "unavailable") ? Next.Retry : Next.Report;
        }

        /// <summary>A command when the connection is lost before the reply.</summary>
        internal static Next AfterLoss(string op, bool repeatable, bool sent)
        {
            if (op == "ack" || op == "ping") return Next.Drop;
            if (!sent) return Next.Keep;
            return repeatable ? Next.Resend : Next.UnknownOutcome;
        }

        /// <summary>A refused hello. Fresh: the token was fetched for this attempt.</summary>
        internal static Next AfterHello(string code, bool renews, bool fresh)
        {
            switch (code)
            {
                case "unauthenticated":
                    return renews && !fresh ? Next.NewToken : Next.Close;
                case "rate_limited": case "busy": case "unavailable": case "internal": case "gone": case "conflict": case "blocked":
                    return Next.Retry;
                default:
                    return Next.Close;
            }
        }

        /// <summary>A close code; 0: none. The error is that of a client that closes.</summary>
        internal static Next AfterClose(int code, bool renews, out TavernException error)
        {
            error = null;
            if (code == Superseded) error = new TavernException(ErrorCode.Superseded, "another connection took over this session");
            else if (code == TokenExpired && renews) return Next.NewToken;
            else if (code == TokenExpired) error = new TavernException("unauthenticated", "the token has expired; pass GetToken to renew it");
            else if (code >= StopFirst && code <= StopLast) error = new TavernException("gone", "the server closed the session for good");
            return error == null ? Next.Reconnect : Next.Close;
        }

        /// <summary>Milliseconds until a token expires, if it says when.</summary>
        internal static long? LeftMs(string token)
        {
            var parts = (token ?? "").Split('.');
            if (parts.Length < 2) return null;
            try
            {
                var padded = parts[1].Replace('-', '+').Replace('_', '/').TrimEnd('=');
                padded += new string('=', (4 - padded.Length % 4) % 4);
                var ends = JsonValue.Parse(Encoding.UTF8.GetString(Convert.FromBase64String(padded)))["exp"];
                if (ends.Kind != JsonKind.Number) return null;
                var left = ends.AsDouble() * 1000 - DateTimeOffset.UtcNow.ToUnixTimeMilliseconds();
                // Timers take no more than some weeks.
                return (long)Math.Min(left, 20.0 * 24 * 3600 * 1000);
            }
            catch (FormatException)
            {
                return null;
            }
        }

        /// <summary>Whether a Redis glob matches a name, byte by byte, with the same result as the server for every pattern. A message names its
        /// channel, not the pattern that matched. Backtracking only ever extends the last star, so the time is bounded.</summary>
        internal static bool GlobMatches(string pattern, string name)
        {
            byte[] glob = Encoding.UTF8.GetBytes(pattern), text = Encoding.UTF8.GetBytes(name);
            int p = 0, n = 0, star = -1, reached = 0;
            while (n < text.Length)
            {
                if (p < glob.Length && glob[p] == '*')
                {
                    star = p++;
                    reached = n;
                    continue;
                }
                var after = GlobOne(glob, p, text[n]);
                if (after >= 0)
                {
                    p = after;
                    n++;
                }
                else if (star >= 0)
                {
                    n = ++reached;
                    p = star + 1;
                }
                else return false;
            }
            while (p < glob.Length && glob[p] == '*') p++;
            return p == glob.Length;
        }

        // The position after the element at p if it matches this byte, or -1.
        static int GlobOne(byte[] glob, int p, byte one)
        {
            if (p >= glob.Length) return -1;
            if (glob[p] == '?') return p + 1;
            if (glob[p] == '[') return GlobClass(glob, p + 1, one);
            if (glob[p] == '\\' && p + 1 < glob.Length) p++;
            return glob[p] == one ? p + 1 : -1;
        }

        static int GlobClass(byte[] glob, int p, byte one)
        {
            var inverted = p < glob.Length && glob[p] == '^';
            if (inverted) p++;
            var found = false;
            // A class that is not closed ends with the pattern, as in Redis.
            while (p < glob.Length && glob[p] != ']')
            {
                if (glob[p] == '\\' && p + 1 < glob.Length)
                {
                    found |= glob[p + 1] == one;
                    p += 2;
                }
                else if (p + 2 < glob.Length && glob[p + 1] == '-')
                {
                    byte low = Math.Min(glob[p], glob[p + 2]), high = Math.Max(glob[p], glob[p + 2]);
                    found |= low <= one && one <= high;
                    p += 3;
                }
                else found |= glob[p++] == one;
            }
            return found == inverted ? -1 : Math.Min(p + 1, glob.Length);
        }
    }
}
