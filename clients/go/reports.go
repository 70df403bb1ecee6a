package callgate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	reportsMax      = 10_000
	reportsBytesMax = 64 << 20
	// The longest pauses before a report is sent again, and after an unavailable server.
	reportPauseMax, queuePauseMax = 10 * time.Second, 5 * time.Second
	// By then the lease of the permit that a cancellation gives back is over.
	cancellationAge = time.Hour
	// A cancellation of a call that the server does not know is sent so often: its question may be on its way.
	unknownMax = 4
)

type callKey struct{ session, call string }

// Unsent is a report that the server has not stored.
type Unsent struct {
	SessionID, CallID string
	// Executed is true for an outcome, and false for a cancellation, which gives back the permit of a call that did not
	// run.
	Executed bool
}

type report struct {
	key      callKey
	executed bool
	body     []byte
	// The approval request to withdraw first.
	approval string
	due      time.Time
	expires  time.Time
	tries    int
}

func (r *report) unsent() Unsent { return Unsent{r.key.session, r.key.call, r.executed} }

// Reports that could not be made at once, sent by one goroutine: executed outcomes first, which are never dropped.
type reports struct {
	client  *Client
	mu      sync.Mutex
	changed *sync.Cond
	waiting []*report
	sending *report
	// Made by their callers right now.
	direct  map[*report]bool
	lost    []Unsent
	bytes   int
	works   bool
	flushes int
	pause   time.Duration
	resume  time.Time
	wake    chan struct{}
}

func (q *reports) init(client *Client) {
	q.client, q.changed = client, sync.NewCond(&q.mu)
	q.direct, q.wake = map[*report]bool{}, make(chan struct{}, 1)
}

// True while so many outcomes wait that another one could not be kept.
func (q *reports) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) >= reportsMax || q.bytes >= reportsBytesMax
}

// Queues a report. The last one of a call holds, but no cancellation replaces an outcome.
func (q *reports) put(r *report) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isSame := func(other *report) bool { return other.key == r.key }
	if at := slices.IndexFunc(q.waiting, isSame); at >= 0 {
		if q.waiting[at].executed && !r.executed {
			return
		}
		q.remove(at)
	}
	if !r.executed {
		r.expires = time.Now().Add(cancellationAge)
		if len(q.waiting) >= reportsMax || (q.sending != nil && q.sending.executed && isSame(q.sending)) {
			return
		}
	}
	q.add(r)
}

func (q *reports) add(r *report) {
	q.waiting = append(q.waiting, r)
	q.bytes += len(r.body)
	if !q.works {
		q.works = true
		go q.work()
	}
	q.stir()
}

func (q *reports) remove(at int) *report {
	r := q.waiting[at]
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.bytes -= len(r.body)
	q.changed.Broadcast()
	return r
}

func (q *reports) stir() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Takes the outcome of this call that waits, if any; a cancellation is dropped, since the call is asked for again.
func (q *reports) take(ctx context.Context, key callKey) (*report, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { q.mu.Lock(); defer q.mu.Unlock(); q.changed.Broadcast() })
	defer stop()
	for q.sending != nil && q.sending.key == key {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		q.changed.Wait()
	}
	at := slices.IndexFunc(q.waiting, func(r *report) bool { return r.key == key })
	if at < 0 {
		return nil, nil
	}
	if r := q.remove(at); r.executed {
		return r, nil
	}
	return nil, nil
}

// Sends a report for its caller, and queues it if that fails for now.
func (q *reports) now(ctx context.Context, r *report) (*recordAnswer, error) {
	q.mu.Lock()
	q.direct[r] = true
	q.mu.Unlock()
	answer, err := q.send(ctx, r)
	if err != nil && !q.isLost(r, err) {
		q.put(r)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.direct, r)
	q.changed.Broadcast()
	return answer, err
}

func (q *reports) send(ctx context.Context, r *report) (*recordAnswer, error) {
	c := q.client
	if r.approval != "" {
		by := c.by
		if by == "" {
			by = r.key.session
		}
		body, _ := json.Marshal(map[string]string{"approvalId": r.approval, "reason": "the call was cancelled"})
		// A request that was answered meanwhile stays answered.
		_ = c.send(ctx, "ApprovalService/WithdrawApproval", body, &struct{}{}, c.timeout, by)
	}
	answer := new(recordAnswer)
	if err := c.retry(ctx, "GateService/Record", r.body, answer, c.timeout); err != nil {
		return nil, err
	}
	return answer, nil
}

// True where a report can never be stored.
func (q *reports) isLost(r *report, err error) bool {
	var failed *Error
	if !errors.As(err, &failed) || !failed.isPermanent() {
		return false
	}
	if r.executed {
		q.client.log.Error("callgate: an outcome is not stored", "session", r.key.session, "call", r.key.call, "error", err)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.lost = append(q.lost[max(0, len(q.lost)-reportsMax):], r.unsent())
	}
	return true
}

// Sends what waits, and ends when nothing does.
func (q *reports) work() {
	for {
		q.mu.Lock()
		at, pause := q.next()
		if at < 0 {
			q.works = false
			q.mu.Unlock()
			return
		}
		if pause > 0 {
			q.mu.Unlock()
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-q.wake:
			}
			timer.Stop()
			continue
		}
		r := q.remove(at)
		q.sending = r
		q.mu.Unlock()
		_, err := q.send(context.Background(), r)
		isDone := err == nil || q.isUnknown(r, err) || (!errors.Is(err, ErrNotFound) || r.executed) && q.isLost(r, err)
		q.mu.Lock()
		q.sending = nil
		if err == nil {
			q.pause = 0
		}
		isReplaced := slices.ContainsFunc(q.waiting, func(other *report) bool { return other.key == r.key })
		if !isDone && !isReplaced {
			q.postpone(r, err)
			q.add(r)
		}
		q.changed.Broadcast()
		q.mu.Unlock()
	}
}

// The next report that is due, else the pause until one is; -1 when none waits.
func (q *reports) next() (int, time.Duration) {
	now := time.Now()
	isOld := func(r *report) bool { return !r.executed && now.After(r.expires) }
	for at := slices.IndexFunc(q.waiting, isOld); at >= 0; at = slices.IndexFunc(q.waiting, isOld) {
		q.remove(at)
	}
	if len(q.waiting) == 0 {
		return -1, 0
	}
	if pause := q.resume.Sub(now); pause > 0 {
		return 0, pause
	}
	first, soonest := -1, 0
	for at, r := range q.waiting {
		if !r.due.After(now) && (first < 0 || (r.executed && !q.waiting[first].executed)) {
			first = at
		}
		if r.due.Before(q.waiting[soonest].due) {
			soonest = at
		}
	}
	if first >= 0 {
		return first, 0
	}
	return soonest, q.waiting[soonest].due.Sub(now)
}

// True for a cancellation of a call that the server does not know after all tries.
func (q *reports) isUnknown(r *report, err error) bool {
	return !r.executed && errors.Is(err, ErrNotFound) && r.tries >= unknownMax
}

func (q *reports) postpone(r *report, err error) {
	var failed *Error
	asked := time.Duration(0)
	if errors.As(err, &failed) {
		asked = min(failed.RetryAfter, time.Minute)
	}
	longest := func(pause time.Duration) time.Duration {
		if q.flushes > 0 {
			return firstPause
		}
		return pause
	}
	now := time.Now()
	r.due = now.Add(max(asked, min(firstPause<<r.tries, longest(reportPauseMax))))
	r.tries = min(r.tries+1, 10)
	if errors.Is(err, ErrUnavailable) {
		q.pause = min(max(q.pause*2, firstPause), longest(queuePauseMax))
		q.resume = now.Add(max(asked, q.pause))
	}
}

// Waits until all is sent, and returns what is not, with what was refused since the last time.
func (q *reports) flush(ctx context.Context) []Unsent {
	q.mu.Lock()
	defer q.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { q.mu.Lock(); defer q.mu.Unlock(); q.changed.Broadcast() })
	defer stop()
	q.flushes++
	defer func() { q.flushes-- }()
	q.resume, q.pause = time.Time{}, 0
	for _, r := range q.waiting {
		r.due = time.Time{}
	}
	q.stir()
	for ctx.Err() == nil && (len(q.waiting) > 0 || q.sending != nil || len(q.direct) > 0) {
		q.changed.Wait()
	}
	unsent := q.lost
	q.lost = nil
	if q.sending != nil {
		unsent = append(unsent, q.sending.unsent())
	}
	for r := range q.direct {
		unsent = append(unsent, r.unsent())
	}
	for _, r := range q.waiting {
		unsent = append(unsent, r.unsent())
	}
	return unsent
}
