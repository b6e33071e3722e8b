package tavern

import "sync"

// The most calls that wait for the functions of the app.
const waitingCalls = 16_384

// dispatcher calls the functions of the app one after the other, outside the lock of the client. Its goroutine exists only while there
// is something to call.
type dispatcher struct {
	mu      sync.Mutex
	calls   []func()
	running bool
	dropped int
	// Called when calls were dropped and there is room again.
	overflowed func(dropped int)
	// Called when a function panics.
	failed func(panicked any)
}

// add appends a call. Only what the server repeats on request is droppable.
func (d *dispatcher) add(droppable bool, call func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if droppable && (len(d.calls) >= waitingCalls || d.dropped > 0) {
		d.dropped++
		return
	}
	d.calls = append(d.calls, call)
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *dispatcher) run() {
	for {
		d.mu.Lock()
		if len(d.calls) == 0 {
			dropped := d.dropped
			d.dropped, d.calls = 0, nil
			if dropped == 0 {
				d.running = false
				d.mu.Unlock()
				return
			}
			d.mu.Unlock()
			d.guarded(func() { d.overflowed(dropped) })
			continue
		}
		call := d.calls[0]
		d.calls[0] = nil
		d.calls = d.calls[1:]
		d.mu.Unlock()
		d.guarded(call)
	}
}

func (d *dispatcher) guarded(call func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			d.failed(panicked)
		}
	}()
	call()
}

// listeners are the functions for one kind of event. They are used under the lock of the client.
type listeners[T any] struct {
	last int
	all  []listener[T]
}

type listener[T any] struct {
	number int
	call   func(T)
}

func (l *listeners[T]) add(call func(T)) int {
	l.last++
	l.all = append(l.all, listener[T]{l.last, call})
	return l.last
}

func (l *listeners[T]) remove(number int) {
	kept := make([]listener[T], 0, len(l.all))
	for _, one := range l.all {
		if one.number != number {
			kept = append(kept, one)
		}
	}
	l.all = kept
}

// emit gives the value to every listener there is now.
func (l *listeners[T]) emit(d *dispatcher, droppable bool, value T) {
	if len(l.all) == 0 {
		return
	}
	all := l.all[:len(l.all):len(l.all)]
	d.add(droppable, func() {
		for _, one := range all {
			one.call(value)
		}
	})
}
