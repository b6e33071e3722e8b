using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Tavern
{
    /// <summary>Raises the events of a client one after the other, outside its lock, where the app wants them.</summary>
    internal sealed class Dispatcher
    {
        /// <summary>The most events that wait for the app.</summary>
        internal const int Most = 16384;
        // So many at a time: in Unity the rest comes with the next frame.
        const int AtOnce = 1024;

        readonly Action<Action> post;
        readonly Action<int> overflowed;
        readonly Action<Exception> failed;
        readonly Queue<Action> calls = new Queue<Action>();
        bool running;
        int dropped;

        internal Dispatcher(Action<Action> given, Action<int> overflowed, Action<Exception> failed)
        {
            this.overflowed = overflowed;
            this.failed = failed;
            var context = SynchronizationContext.Current;
            if (given != null) post = given;
            else if (context != null) post = run => context.Post(_ => run(), null);
            else post = run => Task.Run(run);
        }

        /// <summary>Appends a call. Only what the server repeats on request is droppable.</summary>
        internal void Add(bool droppable, Action call)
        {
            lock (calls)
            {
                if (droppable && (calls.Count >= Most || dropped > 0))
                {
                    dropped++;
                    return;
                }
                calls.Enqueue(call);
                if (running) return;
                running = true;
            }
            post(Run);
        }

        void Run()
        {
            for (var left = AtOnce; ; left--)
            {
                Action call;
                lock (calls)
                {
                    if (calls.Count > 0 && left > 0) call = calls.Dequeue();
                    else if (calls.Count > 0) break;
                    else if (dropped > 0)
                    {
                        var lost = dropped;
                        dropped = 0;
                        call = () => overflowed(lost);
                    }
                    else
                    {
                        running = false;
                        return;
                    }
                }
                try
                {
                    call();
                }
                catch (Exception failure)
                {
                    failed(failure);
                }
            }
            post(Run);
        }
    }
}
