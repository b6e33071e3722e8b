// Package tavern is the Go client of Tavern: channels, presence, people, the inbox and parties over one session, and [Backend], the
// server API for services.
//
//	client, err := tavern.Connect(ctx, "http://127.0.0.1:7400", tavern.Options{User: "ann"})
//	if err != nil {
//		return err
//	}
//	defer client.Close(ctx)
//	room := client.Channel("room#1")
//	room.OnMessage(func(message tavern.Message) { fmt.Println(message.User, message.Text()) })
//	if err := room.Subscribe(ctx); err != nil {
//		return err
//	}
//	_, err = room.Publish(ctx, "hello")
//
// The client keeps one session alive over WebSocket, SSE or long-poll. It reconnects by itself, resumes the session, and restores
// subscriptions and presence when the server has started a new one.
//
// Functions given to On… methods are called one after the other, in the order of the events, on a goroutine of the client. They may
// call any method of the client. While one of them runs, later events wait: at most 16,384, then events are dropped and OnGap tells.
//
// Every call ends: with a result, when its context ends, after [Options].CommandTimeout, or with the error of a client that is closed.
package tavern
