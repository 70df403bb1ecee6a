// Package callgate asks a callgate server before a tool call of an LLM agent, executes it once per permit, and reports
// the outcome. It speaks JSON over HTTP and needs the standard library alone.
package callgate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	defaultServer  = "http://127.0.0.1:7600"
	defaultTimeout = 10 * time.Second
	// As the contract's service config has them.
	attemptsMax = 4
	firstPause  = 200 * time.Millisecond
	// A previous result may be as large as the original, with escapes.
	answerBytesMax = 64 << 20
)

// Config is the server to ask and the credential to present. An empty field takes the variable of its line.
type Config struct {
	// Server is http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH (CALLGATE_SERVER, else 127.0.0.1:7600).
	Server string
	// Token is the API token (CALLGATE_TOKEN). TokenFile names a file with it, and goes first (CALLGATE_TOKEN_FILE).
	Token, TokenFile string
	// CA, Cert and Key name PEM files (CALLGATE_CA, CALLGATE_CERT, CALLGATE_KEY).
	CA, Cert, Key string
	// By names the caller on a server without credentials (CALLGATE_BY).
	By string
	// Timeout of one answer, retries included; 10 seconds.
	Timeout time.Duration
	// Logger gets outcomes that cannot be stored, and causes of an unavailable server; slog.Default().
	Logger *slog.Logger
}

// Client is a connection to one server, for any number of goroutines. Close it at the end of the program.
type Client struct {
	server  string
	headers http.Header
	by      string
	timeout time.Duration
	log     *slog.Logger
	http    *http.Client
	reports reports
	mu      sync.Mutex
	running map[callKey]bool
}

// NewClient reads the settings, and connects to nothing yet.
func NewClient(config Config) (*Client, error) {
	token, err := readToken(config)
	if err != nil {
		return nil, err
	}
	by := setting(config.By, "CALLGATE_BY")
	c := &Client{by: by, timeout: config.Timeout, log: config.Logger, running: map[callKey]bool{}, headers: http.Header{}}
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	for name, value := range map[string]string{"Authorization": token, "Callgate-By": by} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("callgate: the token and By take printable ASCII alone (%s)", name)
		}
	}
	c.headers.Set("Content-Type", "application/json")
	if token != "" {
		c.headers.Set("Authorization", "Bearer "+token)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	// Long polls and calls do not share a connection: a server limits the requests of one.
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if transport.TLSClientConfig, err = tlsConfig(config); err != nil {
		return nil, err
	}
	server := strings.TrimRight(setting(config.Server, "CALLGATE_SERVER"), "/")
	if server == "" {
		server = defaultServer
	}
	if path, isUnix := strings.CutPrefix(server, "unix:"); isUnix {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		transport.Proxy = nil
		server = "http://localhost"
	} else if server, err = readServer(server, token != ""); err != nil {
		return nil, err
	}
	c.server = server
	// A redirect would carry the credential elsewhere.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: transport, CheckRedirect: stay}
	c.reports.init(c)
	return c, nil
}

func setting(given, name string) string {
	if given != "" {
		return given
	}
	return os.Getenv(name)
}

func readToken(config Config) (string, error) {
	file := config.TokenFile
	if file == "" && config.Token == "" {
		file = os.Getenv("CALLGATE_TOKEN_FILE")
	}
	if file == "" {
		return strings.TrimSpace(setting(config.Token, "CALLGATE_TOKEN")), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("callgate: the token file (TokenFile, CALLGATE_TOKEN_FILE): %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func readServer(server string, hasToken bool) (string, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	at, err := url.Parse(server)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Hostname() == "" || at.Path+at.User.String() != "" {
		return "", fmt.Errorf("callgate: server: %q is not http://HOST:PORT, https://HOST:PORT or unix:PATH", server)
	}
	ip := net.ParseIP(at.Hostname())
	isHere := at.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
	if hasToken && at.Scheme == "http" && !isHere {
		return "", fmt.Errorf("callgate: server: a token would travel to %s in plain text; use https://", server)
	}
	return server, nil
}

func tlsConfig(config Config) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := setting(config.CA, "CALLGATE_CA"); ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("callgate: CA: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("callgate: CA: %s has no certificate in PEM", ca)
		}
	}
	cert, key := setting(config.Cert, "CALLGATE_CERT"), setting(config.Key, "CALLGATE_KEY")
	if (cert == "") != (key == "") {
		return nil, errors.New("callgate: Cert and Key go together: a certificate is presented with its key")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("callgate: Cert, Key: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// Invoke calls any unary method of the contract once, such as "SessionService/Halt". The request and the response are
// proto3 JSON (proto/callgate/v1): a map or a struct with the names in camel case. Errors are *Error, or those of ctx.
func (c *Client) Invoke(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("callgate: %s: %w", method, err)
	}
	return c.send(ctx, method, body, response, c.timeout, c.by)
}

// Sends a request that may be sent again, until it is answered or `timeout` is over.
func (c *Client) retry(ctx context.Context, method string, body []byte, response any, timeout time.Duration) error {
	end := time.Now().Add(timeout)
	for attempt, pause := 1, firstPause; ; attempt, pause = attempt+1, pause*2 {
		err := c.send(ctx, method, body, response, time.Until(end), c.by)
		var failed *Error
		isPassing := errors.As(err, &failed) && (failed.Code == "unavailable" || failed.Code == "aborted")
		if !isPassing || attempt == attemptsMax || time.Until(end) <= pause {
			return err
		}
		if sleep(ctx, jitter(pause)) != nil {
			return ctx.Err()
		}
	}
}

func (c *Client) send(
	parent context.Context, method string, body []byte, response any, timeout time.Duration, by string,
) error {
	ctx, cancel := context.WithTimeout(parent, max(timeout, time.Millisecond))
	defer cancel()
	url := c.server + "/callgate.v1." + method
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("callgate: %s: %w", method, err)
	}
	request.Header = c.headers.Clone()
	if by != "" {
		request.Header.Set("Callgate-By", by)
	}
	if deadline, ok := ctx.Deadline(); ok {
		request.Header.Set("Connect-Timeout-Ms", fmt.Sprint(max(time.Until(deadline).Milliseconds(), 1)))
	}
	answer, err := c.http.Do(request)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
		_ = answer.Body.Close()
	}
	switch {
	case parent.Err() != nil && err != nil:
		return parent.Err()
	case ctx.Err() != nil && err != nil:
		message := fmt.Sprintf("%s gave no answer in %s", c.server, timeout.Round(time.Millisecond))
		return &Error{Code: "deadline_exceeded", Message: message}
	case err != nil:
		return &Error{Code: "unavailable", Message: err.Error()}
	case answer.StatusCode != http.StatusOK:
		return readError(answer.StatusCode, text)
	}
	if err := json.Unmarshal(text, response); err != nil {
		return &Error{Code: "unknown", Message: fmt.Sprintf("the answer of %s is not that of callgate: %v", c.server, err)}
	}
	return nil
}

// Close sends the reports that wait, until ctx ends or, without a deadline, for three seconds. It returns those that are
// not stored: they are sent as long as the process lives, unless the server has refused them.
func (c *Client) Close(ctx context.Context) []Unsent {
	if _, isBounded := ctx.Deadline(); !isBounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
	}
	unsent := c.reports.flush(ctx)
	for _, one := range unsent {
		if one.Executed {
			c.log.Error("callgate: an outcome is not stored", "session", one.SessionID, "call", one.CallID)
		}
	}
	c.http.CloseIdleConnections()
	return unsent
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Callers that failed together do not come again together.
func jitter(pause time.Duration) time.Duration {
	return pause + time.Duration(rand.Int63n(int64(pause)+1))
}
