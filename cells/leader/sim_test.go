// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// object is the lease as JSON, so that tests may write what no typed client would.
type object = map[string]any

// fakeAPI serves one lease, with the concurrency control of an API server.
type fakeAPI struct {
	mu       sync.Mutex
	lease    object // nil: there is none
	revision int
	created  int
	rewrite  func(lease object) // what a webhook does to each write
}

func (f *fakeAPI) setRewrite(rewrite func(object)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rewrite = rewrite
}

func (f *fakeAPI) edit(change func(lease object)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.lease)
	f.store(f.lease)
}

func (f *fakeAPI) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = nil
}

// make makes another object of a lease.
func (f *fakeAPI) make(lease object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create(lease)
}

// create is called with the lock held.
func (f *fakeAPI) create(lease object) {
	f.created++
	meta := lease["metadata"].(object)
	meta["uid"], meta["namespace"] = fmt.Sprint("uid-", f.created), "default"
	f.store(lease)
}

// copy is the lease as it is stored.
func (f *fakeAPI) copy() object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return decode(encode(f.lease))
}

// store is called with the lock held.
func (f *fakeAPI) store(lease object) {
	f.revision++
	f.lease = decode(encode(lease))
	f.lease["metadata"].(object)["resourceVersion"] = strconv.Itoa(f.revision)
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func decode(text []byte) (o object) {
	if err := json.Unmarshal(text, &o); err != nil {
		panic(err)
	}
	return o
}

func (f *fakeAPI) serve(req *http.Request) (code int, answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	code, object := f.process(req)
	return code, encode(object)
}

// process is called with the lock held.
func (f *fakeAPI) process(req *http.Request) (code int, answer object) {
	var sent object
	if req.Body != nil {
		text, _ := io.ReadAll(req.Body)
		sent = decode(text)
	}
	switch {
	case sent != nil && sent["spec"].(object)["leaseTransitions"].(float64) < 0:
		return statusOf(http.StatusUnprocessableEntity, "Invalid")
	case req.Method == http.MethodPost && f.lease != nil:
		return statusOf(http.StatusConflict, "AlreadyExists")
	case req.Method == http.MethodPost:
		f.admit(sent)
		f.create(sent)
		return http.StatusCreated, f.lease
	case f.lease == nil:
		return statusOf(http.StatusNotFound, "NotFound")
	case req.Method == http.MethodPut:
		if sent["metadata"].(object)["resourceVersion"] != f.lease["metadata"].(object)["resourceVersion"] {
			return statusOf(http.StatusConflict, "Conflict")
		}
		f.admit(sent)
		f.store(sent)
	}
	return http.StatusOK, f.lease
}

// admit is called with the lock held.
func (f *fakeAPI) admit(sent object) {
	if f.rewrite != nil {
		f.rewrite(sent)
	}
}

func statusOf(code int, reason string) (int, object) {
	return code, object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason,
		"details": object{"group": "coordination.k8s.io", "kind": "leases", "name": leaseName},
	}
}

// participant is an elector of a simulation, and its way to the API server.
type participant struct {
	*elector
	health *health.Tree
	name   string
	world  *simulation
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	cut   bool                                              // no request arrives
	spoil func(*http.Request, *http.Response) (int, string) // replaces the answer, 0 leaves it
	fence *leading.Fence
	in    bool // the term
	terms int
}

var errCut = errors.New("cut off")

// RoundTrip is the way to the API server.
func (p *participant) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	cut, spoil := p.cut, p.spoil
	p.mu.Unlock()
	if cut {
		return nil, errCut
	}
	code, text := p.world.api.serve(req)
	resp := &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: req}
	if spoil != nil {
		if code, spoilt := spoil(req, resp); code != 0 {
			resp.StatusCode, text = code, []byte(spoilt)
			resp.Header.Set("Content-Type", "text/plain")
			if strings.HasPrefix(spoilt, "{") || spoilt == "null" {
				resp.Header.Set("Content-Type", "application/json")
			}
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

func (p *participant) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *participant) setSpoil(spoil func(*http.Request, *http.Response) (int, string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil = spoil
}

// LeaseConfig implements leading.Session.
func (p *participant) LeaseConfig() *rest.Config {
	return &rest.Config{Host: "http://api", Transport: p, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// Open implements leading.Session.
func (p *participant) Open(f *leading.Fence, _ *leading.WriteProgress) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fence = f
	return nil
}

// DrainWrites implements leading.Session.
func (p *participant) DrainWrites(context.Context) {}

// WriteProgress implements leading.Session.
func (p *participant) WriteProgress() leading.WriteProgress {
	return leading.WriteProgress{Complete: true}
}

// Enter implements lifecycle.Term: no other replica may write then.
func (p *participant) Enter(context.Context) error {
	p.mu.Lock()
	p.in = true
	p.terms++
	p.mu.Unlock()
	for _, other := range p.world.participants() {
		if other != p && other.writes() {
			p.world.t.Errorf("at %s %s enters its term while %s writes", p.world.elapsed(), p.name, other.name)
		}
	}
	return nil
}

// Leave implements lifecycle.Term.
func (p *participant) Leave(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in = false
	return nil
}

// writes reports whether a write of the participant would leave it now.
func (p *participant) writes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in && p.fence.Check() == nil
}

func (p *participant) countTerms() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.terms
}

// simulation is a cluster whose time is that of a synctest bubble.
type simulation struct {
	t     *testing.T
	api   *fakeAPI
	began time.Time

	mu  sync.Mutex
	all []*participant
}

func (s *simulation) participants() []*participant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func newSimulation(t *testing.T) *simulation {
	return &simulation{t: t, api: &fakeAPI{}, began: time.Now()}
}

func (s *simulation) elapsed() time.Duration { return time.Since(s.began) }

// timing is that of simulations, short for the sake of their number.
var timing = Config{LeaderElectionLeaseDuration: 5 * time.Second, LeaderElectionRenewDeadline: 3 * time.Second, LeaderElectionRetryPeriod: time.Second}

// defaults is the timing of the contract.
var defaults = Config{LeaderElectionLeaseDuration: 15 * time.Second, LeaderElectionRenewDeadline: 10 * time.Second, LeaderElectionRetryPeriod: 2 * time.Second}

// start runs another elector.
func (s *simulation) start(name string) *participant { return s.startSpoilt(name, nil) }

// startSpoilt is start with responses that are spoilt from the first on.
func (s *simulation) startSpoilt(name string, spoil func(*http.Request, *http.Response) (int, string)) *participant {
	s.t.Helper()
	p := &participant{name: name, world: s, spoil: spoil, ended: make(chan struct{}), health: health.NewTree()}
	var err error
	p.elector, err = newElector(params{
		Config: timing, Cluster: cluster.Config{}, Leading: p, Server: serverOf("v1.36.0"), Term: p,
		Metrics: newMetrics(metrics.Factory{}), Health: p.health.Reporter("leader"), Log: slog.New(slog.DiscardHandler), Stop: func(error) {},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	p.clock = leading.Clock{Monotonic: s.elapsed, Wall: time.Now}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	s.mu.Lock()
	s.all = append(s.all, p)
	s.mu.Unlock()
	go func() {
		defer close(p.ended)
		_ = p.run(ctx)
	}()
	return p
}

// stop ends an elector in order.
func (p *participant) stop() {
	p.cancel()
	<-p.ended
}

func (s *simulation) stop() {
	for _, p := range s.participants() {
		p.stop()
	}
}

// writers are the names of those that write now.
func (s *simulation) writers() (names []string) {
	for _, p := range s.participants() {
		if p.writes() {
			names = append(names, p.name)
		}
	}
	return names
}

// awaitWriter waits until a replica writes, and returns its name; "" after the limit.
func (s *simulation) awaitWriter(limit time.Duration) string {
	for end := s.elapsed() + limit; s.elapsed() <= end; time.Sleep(10 * time.Millisecond) {
		if w := s.writers(); len(w) > 0 {
			return w[0]
		}
	}
	return ""
}

// The simulation itself: an orderly stop hands over at the standby's next look, a
// crash is waited out.
func TestTheSimulationHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t)
		defer s.stop()
		a := s.start("a")
		if w := s.awaitWriter(time.Second); w != "a" {
			t.Fatalf("%q leads first", w)
		}
		b := s.start("b")
		time.Sleep(time.Minute)
		a.stop()
		stopped := s.elapsed()
		if w := s.awaitWriter(time.Minute); w != "b" || s.elapsed()-stopped > 300*time.Millisecond {
			t.Errorf("%q leads %s after a stopped", w, s.elapsed()-stopped)
		}
		s.start("c")
		time.Sleep(time.Minute)
		b.setCut(true)
		cut := s.elapsed()
		time.Sleep(4 * time.Second)
		if w := s.awaitWriter(time.Minute); w != "c" || s.elapsed()-cut > 5500*time.Millisecond {
			t.Errorf("%q leads %s after b was cut off", w, s.elapsed()-cut)
		}
		b.setCut(false)
		time.Sleep(time.Minute)
		if w := s.writers(); len(w) != 1 || w[0] != "c" {
			t.Errorf("%v write", w)
		}
	})
}
