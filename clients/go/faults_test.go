package callgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestUnavailableServerRunsNothing(t *testing.T) {
	client := newClient(t, Config{Server: "127.0.0.1:1", Timeout: time.Second})
	got, err := Run(context.Background(), client.Gate("s", GateOptions{}), Call{Tool: "pay", Args: fresh()}, never(t))
	if err != nil || got.Ran || got.Reason != "callgate_unavailable" || !errors.Is(got.Err, ErrUnavailable) || !got.IsError {
		t.Fatalf("%+v %v", got, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if unsent := client.Close(ctx); len(unsent) != 1 || unsent[0].Executed || unsent[0].SessionID != "s" {
		t.Fatalf("%+v", unsent)
	}
}

// A proxy of the server that can lose requests and answers.
type proxy struct {
	*http.Server
	address string
	lose    atomic.Value
}

func newProxy(t *testing.T) *proxy {
	p := &proxy{}
	p.lose.Store("")
	at, _ := url.Parse("http://" + server)
	forward := httputil.NewSingleHostReverseProxy(at)
	p.Server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p.lose.Load().(string) {
		case "request " + filepath.Base(r.URL.Path):
		case "answer " + filepath.Base(r.URL.Path):
			forward.ServeHTTP(discard{http.Header{}}, r)
		case "page":
			fmt.Fprint(w, "<html>Sign in to the network</html>")
			return
		case "empty":
			fmt.Fprint(w, "{}")
			return
		default:
			forward.ServeHTTP(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	go func() { _ = p.Serve(listener) }()
	t.Cleanup(func() { _ = p.Server.Close() })
	return p
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header          { return d.header }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}

func TestLostPermitIsGivenBack(t *testing.T) {
	p := newProxy(t)
	p.lose.Store("answer Evaluate")
	client := newClient(t, Config{Server: p.address, Timeout: time.Second})
	g := client.Gate(t.Name()+randomID(), GateOptions{})
	got, err := Run(context.Background(), g, Call{Tool: "pay", Args: fresh(), ID: "a"}, never(t))
	if err != nil || got.Reason != "callgate_unavailable" {
		t.Fatalf("%+v %v", got, err)
	}
	becomes(t, g, "a", "CANCELLED")
	p.lose.Store("")
	if got, err := Run(context.Background(), g, Call{Tool: "pay", Args: fresh(), ID: "b"}, get); err != nil || !got.Ran {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestOutcomeIsSentAgainUntilItIsStored(t *testing.T) {
	p, args := newProxy(t), fresh()
	p.lose.Store("request Record")
	client := newClient(t, Config{Server: p.address, Timeout: 500 * time.Millisecond})
	g := client.Gate(t.Name()+randomID(), GateOptions{})
	got, err := Run(context.Background(), g, Call{Tool: "pay", Args: args, ID: "a"}, get)
	if err != nil || !got.Ran || got.Recorded || got.Value.Total != "7.00" || !strings.Contains(got.Text, "7.00") {
		t.Fatalf("%+v %v", got, err)
	}
	// The same id is not asked for again before its outcome is stored.
	again, err := Run(context.Background(), g, Call{Tool: "pay", Args: args, ID: "a"}, never(t))
	if err != nil || again.Reason != "callgate_unavailable" || !strings.Contains(again.Text, "has run before") {
		t.Fatalf("%+v %v", again, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if unsent := client.Close(ctx); len(unsent) != 1 || !unsent[0].Executed || unsent[0].CallID != "a" {
		t.Fatalf("%+v", unsent)
	}
	p.lose.Store("")
	if unsent := client.Close(context.Background()); len(unsent) != 0 {
		t.Fatalf("%+v", unsent)
	}
	becomes(t, g, "a", "SUCCEEDED")
}

func TestForeignAnswersAreNoPermits(t *testing.T) {
	p := newProxy(t)
	for _, answer := range []string{"page", "empty"} {
		p.lose.Store(answer)
		client := newClient(t, Config{Server: p.address, Timeout: time.Second})
		got, err := Run(context.Background(), client.Gate("s", GateOptions{}), Call{Tool: "pay", Args: fresh()}, never(t))
		if err != nil || got.Reason != "callgate_unavailable" {
			t.Errorf("%s: %+v %v", answer, got, err)
		}
	}
}
