// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silentServer is an API server that is asked through next, and does not answer some requests.
type silentServer struct {
	next   http.RoundTripper
	method string        // of requests without an answer
	pause  time.Duration // before each byte of the others
}

// RoundTrip implements http.RoundTripper.
func (s *silentServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == s.method {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	resp, err := s.next.RoundTrip(req)
	if err == nil && s.pause > 0 {
		resp.Body = &slowBody{resp.Body, req.Context(), s.pause}
	}
	return resp, err
}

// slowBody is a body that comes byte by byte.
type slowBody struct {
	io.ReadCloser
	ctx   context.Context
	pause time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.pause):
		return b.ReadCloser.Read(p[:1])
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// between has the requests of a contest pass a silent server.
func (c *contest) between() *silentServer {
	s := &silentServer{next: c.memory}
	c.transport.reads.next, c.transport.writer.next = s, s
	return s
}

// K8S-27: no request of a module stays without an end, and an unanswered write is one whose outcome is not known.
func TestRequestsAreAnsweredOrEnd(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		send   func(ctx context.Context, c *contest) error
	}{
		"get": {http.MethodGet, func(ctx context.Context, c *contest) error { _, err := c.Get(ctx, c.ref()); return err }},
		"create": {http.MethodPost, func(ctx context.Context, c *contest) error {
			_, err := c.Create(ctx, configMaps, newConfigMap("n", "b", nil))
			return err
		}},
		"the read of a change": {http.MethodGet, func(ctx context.Context, c *contest) error { _, _, err := c.Modify(ctx, c.ref(), label); return err }},
		"change":               {http.MethodPut, func(ctx context.Context, c *contest) error { _, _, err := c.Modify(ctx, c.ref(), label); return err }},
		"patch": {http.MethodPatch, func(ctx context.Context, c *contest) error {
			_, err := c.Patch(ctx, c.ref(), []byte(`[{"op":"add","path":"/data/x","value":"1"}]`))
			return err
		}},
		"delete": {http.MethodDelete, func(ctx context.Context, c *contest) error {
			return c.Delete(ctx, c.ref(), Preconditions{UID: "uid-2"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContest(t)
				if err := c.create(t, "a"); err != nil {
					t.Fatal(err)
				}
				c.between().method = test.method
				began := time.Now()
				err := test.send(why(t), c)
				var unanswered *UnansweredError
				if took := time.Since(began); !errors.As(err, &unanswered) || unanswered.Method != test.method || took != answerLimit || Refused(err) {
					t.Errorf("after %s: %v", took, err)
				}
				if name == "create" || name == "change" || name == "patch" {
					if c.transport.progress.Unanswered() == 0 {
						t.Error("its outcome counts as known")
					}
				}
			})
		})
	}
}

func (c *contest) ref() Ref { return Ref{Resource: configMaps, Namespace: "n", Name: "a"} }

// K8S-27: an answer that begins has to end, but for lists, which come as long as something comes of them, and watches.
func TestAnswersThatComeSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		pause time.Duration
		ends  bool
	}{
		"an object":                        {"configmaps/a", time.Second, false},
		"an object at once":                {"configmaps/a", time.Millisecond, true},
		"a list":                           {"configmaps", time.Second, true},
		"a list that stops":                {"configmaps", answerLimit + time.Second, false},
		"a watch":                          {"configmaps?watch=true", answerLimit + time.Second, true},
		"a watch of one object":            {"configmaps/a?watch=1", answerLimit + time.Second, true},
		"a list that is no watch":          {"configmaps?watch=false", answerLimit + time.Second, false},
		"a list of one object":             {"configmaps?limit=1", time.Second, false},
		"a list of objects with the label": {"configmaps?labelSelector=watch%3Dtrue", answerLimit + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContest(t)
				for _, name := range []string{"a", "configmaps"} { // the memory names what it has by the end of the path
					if err := c.create(t, name); err != nil {
						t.Fatal(err)
					}
				}
				c.between().pause = test.pause
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/api/v1/namespaces/n/"+test.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if closeErr := resp.Body.Close(); closeErr != nil {
					t.Error(closeErr)
				}
				if unanswered := errors.As(err, new(*UnansweredError)); unanswered == test.ends || !unanswered && err != nil {
					t.Errorf("%d bytes, %v", len(body), err)
				}
			})
		})
	}
}

// K8S-27: where no other request is answered while one is not, what is behind the connections may be gone: they are closed, and the next server is asked.
func TestUnansweredAlone(t *testing.T) {
	for name, test := range map[string]struct {
		method   string
		answered bool // another one, meanwhile
	}{
		"a read": {http.MethodGet, false}, "a write": {http.MethodPut, false}, "a read beside others": {http.MethodGet, true}, "a write beside others": {http.MethodPut, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContest(t)
				if err := c.create(t, "a"); err != nil {
					t.Fatal(err)
				}
				servers := c.transport.servers
				first := servers.url()
				servers.urls = append(servers.urls, first.JoinPath("/second"))
				c.between().method = test.method
				c.transport.writer.next = c.transport.reads
				if test.answered {
					time.AfterFunc(answerLimit/2, func() { c.transport.reads.answered(http.StatusOK) })
				}
				_, _, err := c.Modify(why(t), c.ref(), label)
				if !errors.As(err, new(*UnansweredError)) || (servers.url() == first) != test.answered {
					t.Errorf("the server is %s: %v", servers.url(), err)
				}
			})
		})
	}
}

// K8S-27: the reader of a list may be at work for longer between two reads.
func TestReadersOfListsMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContest(t)
		if err := c.create(t, "configmaps"); err != nil {
			t.Fatal(err)
		}
		c.between()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/api/v1/namespaces/n/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for part := make([]byte, 10); ; time.Sleep(2 * answerLimit) {
			if _, err := resp.Body.Read(part); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// K8S-27 over the wire: a server that accepts a request and does not answer.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	over := make(chan struct{})
	var begins atomic.Bool
	d := openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if begins.Load() {
				w.Header().Set("Content-Type", trueJSON)
				fmt.Fprint(w, `{"kind":`)
				_ = http.NewResponseController(w).Flush()
			}
			<-over
		})
	})
	t.Cleanup(func() { close(over) })
	d.answerLimit = 100 * time.Millisecond
	d.lead(t)
	c := d.client(t, "duty")
	for range 2 {
		_, err := c.Get(t.Context(), Ref{Resource: configMaps, Namespace: "n", Name: "a"})
		if !errors.As(err, new(*UnansweredError)) {
			t.Errorf("a read, of which an answer began %v: %v", begins.Load(), err)
		}
		_, err = c.Create(why(t), configMaps, newConfigMap("n", "a", nil))
		if !errors.As(err, new(*UnansweredError)) {
			t.Errorf("a write, of which an answer began %v: %v", begins.Load(), err)
		}
		begins.Store(true)
	}
	if w := d.progress.WriteProgress(); w.Complete || d.progress.Unanswered() == 0 {
		t.Errorf("its outcome counts as known: %+v", w)
	}
}
