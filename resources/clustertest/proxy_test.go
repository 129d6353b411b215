// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/waittest"
)

// list asks for something small.
func list(t *testing.T, client kubernetes.Interface) error {
	t.Helper()
	return listFor(t, time.Minute, client)
}

// listBriefly is for answers that do not come.
func listBriefly(t *testing.T, client kubernetes.Interface) error {
	t.Helper()
	return listFor(t, time.Second, client)
}

func listFor(t *testing.T, patience time.Duration, client kubernetes.Interface) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

func TestBlackHoleTakesOneDoorOnly(t *testing.T) {
	c := Shared(t)
	holed, open := c.NewProxy(t), c.NewProxy(t)
	holedClient, openClient := newClient(t, holed.AdminConfig(t)), newClient(t, open.AdminConfig(t))
	if err := list(t, holedClient); err != nil {
		t.Fatal(err)
	}
	holed.BlackHole(t)
	if err := listBriefly(t, holedClient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through a black hole came %v, want nothing in time", err)
	}
	if err := list(t, openClient); err != nil {
		t.Errorf("through the other door: %v", err)
	}
	holed.Heal(t)
	if err := list(t, holedClient); err != nil {
		t.Errorf("after healing: %v", err)
	}
}

func TestAPIServerThatComesLater(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t, Link{Refuse: true})
	client := newClient(t, door.AdminConfig(t))
	if err := list(t, client); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before it is there: %v, want connection refused", err)
	}
	door.Heal(t)
	if err := list(t, client); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}

func TestCutAndCount(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t)
	client := newClient(t, door.AdminConfig(t))
	if err := list(t, client); err != nil {
		t.Fatal(err)
	}
	if state := door.State(t); state.Connections != 1 || state.Accepted != 1 || state.BytesUp == 0 || state.BytesDown == 0 {
		t.Errorf("the state is %+v", state)
	}
	if n := door.Cut(t); n != 1 {
		t.Errorf("%d connections were cut, want 1", n)
	}
	until(t, "a connection of its own accord", func(context.Context) bool { return list(t, client) == nil })
	if state := door.State(t); state.Accepted < 2 {
		t.Errorf("after a cut the state is %+v", state)
	}
}

func TestDelay(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t)
	client := newClient(t, door.AdminConfig(t))
	if err := list(t, client); err != nil {
		t.Fatal(err)
	}
	const up, down = 60 * time.Millisecond, 90 * time.Millisecond
	door.Delay(t, up, down)
	start := time.Now()
	if err := list(t, client); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < up+down {
		t.Errorf("an answer took %v, less than the delays of %v", took, up+down)
	}
}

func TestAnswersAreThoseOfAnAPIServer(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t)
	client := newClient(t, door.AdminConfig(t))
	for code, is := range map[int]func(error) bool{
		403: apierrors.IsForbidden,
		409: apierrors.IsConflict,
		410: func(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) },
		429: apierrors.IsTooManyRequests,
		500: apierrors.IsInternalError,
		503: apierrors.IsServiceUnavailable,
	} {
		rule := door.Answer(t, code, Match{Verbs: []string{"get"}, Resources: []string{"nodes"}})
		log := c.Audit(t)
		_, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if !is(err) {
			t.Errorf("%d arrives as %v", code, err)
		}
		if rule.Hits(t) == 0 {
			t.Errorf("%d: the rule did not fire", code)
		}
		for event := range log.Events(t) {
			if event.ObjectRef.Resource == "nodes" && event.Verb == "get" {
				t.Errorf("%d: the server saw the request", code)
			}
		}
		rule.Remove(t)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without rules: %v", err)
	}
}

func TestTooManyRequestsIsTriedAgain(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t)
	rule := door.Rule(t, Rule{Match: Match{Resources: []string{"nodes"}}, Status: &Status{Code: 429, RetryAfter: time.Second}, Times: 1})
	if _, err := newClient(t, door.AdminConfig(t)).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the second try: %v", err)
	}
	if hits := rule.Hits(t); hits != 1 {
		t.Errorf("%d hits, want 1", hits)
	}
}

func TestLostAnswerIsAWriteThatHappened(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door := c.NewProxy(t)
	door.Rule(t, Rule{Match: Match{Verbs: []string{"create"}}, LoseAnswer: &LoseAnswer{Connection: true}, Times: 1})
	_, err := newClient(t, door.AdminConfig(t)).CoreV1().ConfigMaps(ns).Create(t.Context(), newConfigMap("written"), metav1.CreateOptions{})
	if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("the client learned %v", err)
	}
	if _, err := newClient(t, c.AdminConfig(t)).CoreV1().ConfigMaps(ns).Get(t.Context(), "written", metav1.GetOptions{}); err != nil {
		t.Errorf("the server did not: %v", err)
	}
}

// Each kind of spoilt answer comes through a client that speaks protobuf, to a create that
// was done; and what comes in the server's place leaves it alone.
func TestSpoiltAnswersOfAServer(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	straight := newClient(t, c.AdminConfig(t)).CoreV1().ConfigMaps(ns)
	door := c.NewProxy(t)
	config := door.AdminConfig(t)
	config.WrapTransport = withoutRetryAfter
	client := newClient(t, config).CoreV1().ConfigMaps(ns)
	for _, kind := range control.SpoiltAnswers() {
		for _, when := range []control.SpoilWhen{control.SpoilAfter, control.SpoilInstead} {
			name := fmt.Sprintf("%s-%s", kind, when)
			rule := door.Rule(t, Rule{Match: Match{Resources: []string{"configmaps"}}, Spoil: &Spoil{Answers: []control.SpoiltAnswer{kind}, When: when}})
			made, err := client.Create(t.Context(), newConfigMap(name), metav1.CreateOptions{})
			hits := rule.Hits(t)
			rule.Remove(t)
			stored, getErr := straight.Get(t.Context(), name, metav1.GetOptions{})
			if (getErr == nil) != (when == control.SpoilAfter) || hits == 0 {
				t.Errorf("%s: %d hits, the server has it: %v", name, hits, getErr)
			}
			if err == nil && getErr == nil && made.Name == name && made.UID == stored.UID && made.ResourceVersion == stored.ResourceVersion {
				t.Errorf("%s: the answer is as it should be", name)
			}
		}
	}
}

// withoutRetryAfter keeps client-go from waiting for as long as it is told to.
func withoutRetryAfter(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Header.Del("Retry-After")
		}
		return resp, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// watched is a typed watch of the ConfigMaps that a test makes: the one that every
// namespace is given comes when it comes.
func watched(t *testing.T, config *rest.Config, ns string) watch.Interface {
	t.Helper()
	w, err := newClient(t, config).CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name!=kube-root-ca.crt"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func create(t *testing.T, c *Cluster, ns string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := newClient(t, c.AdminConfig(t)).CoreV1().ConfigMaps(ns).Create(t.Context(), newConfigMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// next returns the name of the next ConfigMap that a test made.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type != watch.Added {
			t.Fatalf("the watch told %q of %T, want a ConfigMap that was added", event.Type, event.Object)
		}
		return object.Name
	case <-time.After(waittest.Limit):
		t.Fatal("no event came")
		return ""
	}
}

func TestHeldWatchIsAStaleCache(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door, other := c.NewProxy(t), c.NewProxy(t)
	stale, fresh := watched(t, door.AdminConfig(t), ns), watched(t, other.AdminConfig(t), ns)
	create(t, c, ns, "before")
	if got := next(t, stale); got != "before" {
		t.Fatalf("got %s", got)
	}
	rule := door.HoldWatch(t, "configmaps", 0)
	create(t, c, ns, "a", "b", "c")
	for _, want := range []string{"before", "a", "b", "c"} {
		if got := next(t, fresh); got != want {
			t.Fatalf("through the other door came %s, want %s", got, want)
		}
	}
	// The server has sent all events; a read shows what the watch does not.
	found, err := newClient(t, door.AdminConfig(t)).CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(found.Items) < 4 {
		t.Fatalf("a list through the holding door: %d items, %v", len(found.Items), err)
	}
	until(t, "the rule to hold the watch", func(context.Context) bool { return rule.Hits(t) == 1 })
	select {
	case event := <-stale.ResultChan():
		t.Fatalf("a held watch delivered %v", event.Type)
	default:
	}
	rule.Remove(t)
	for _, want := range []string{"a", "b", "c"} {
		if got := next(t, stale); got != want {
			t.Fatalf("after the release came %s, want %s", got, want)
		}
	}
}

func TestCutWatchesEndsThemCleanly(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door := c.NewProxy(t)
	w := watched(t, door.AdminConfig(t), ns)
	create(t, c, ns, "seen")
	if got := next(t, w); got != "seen" {
		t.Fatalf("got %s", got)
	}
	if n := door.CutWatches(t, Match{Resources: []string{"configmaps"}}); n != 1 {
		t.Fatalf("%d watches were cut, want 1", n)
	}
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			t.Errorf("a clean end is told as %v", apierrors.FromObject(event.Object))
		}
	}
}

func TestExpiredWatchSaysGone(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door := c.NewProxy(t)
	w := watched(t, door.AdminConfig(t), ns)
	create(t, c, ns, "seen")
	next(t, w)
	door.ExpireWatches(t, Match{Resources: []string{"configmaps"}})
	var last watch.Event
	for event := range w.ResultChan() {
		last = event
	}
	if last.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(last.Object)) {
		t.Errorf("the last event is %s %v, want an error that says Expired", last.Type, last.Object)
	}
}

func TestWatchesCutAgainAndAgain(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door := c.NewProxy(t)
	rule := door.CutWatchesEvery(t, 200*time.Millisecond, Match{Resources: []string{"configmaps"}})
	for range 3 {
		w := watched(t, door.AdminConfig(t), ns)
		for range w.ResultChan() {
			// It ends: the test would hang otherwise.
		}
	}
	if hits := rule.Hits(t); hits != 3 {
		t.Errorf("%d hits for three watches that ended", hits)
	}
}

func TestRequestsTellWhoAskedForWhat(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	door := c.NewProxy(t)
	config := door.AdminConfig(t)
	config.UserAgent = "skep/test (ipam.clusterpool)"
	client := newClient(t, config)
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), newConfigMap("x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), "y", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	var got []string
	for _, r := range door.Requests(t, 0) {
		got = append(got, fmt.Sprintf("%d %s %s/%s/%s by %s: %d %v", r.Seq, r.Verb, r.Resource, r.Namespace, r.Name, r.UserAgent, r.Status, r.Mutates()))
	}
	want := []string{
		"1 create configmaps/" + ns + "/ by skep/test (ipam.clusterpool): 201 true",
		"2 get configmaps/" + ns + "/y by skep/test (ipam.clusterpool): 404 false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
