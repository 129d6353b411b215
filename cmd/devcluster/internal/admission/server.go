// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/cmd/devcluster/internal/chance"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Server answers the API server's questions by rules. Its methods are safe for concurrent
// use.
type Server struct {
	http     *http.Server
	listener net.Listener

	mu    sync.Mutex
	rules []*rule
	count int
}

// rule is a rule at work. Its counters are guarded by the server's lock.
type rule struct {
	control.Admission
	chance  *chance.Chance
	removed chan struct{}
}

// Serve starts a server on loopback.
func Serve(cert tls.Certificate, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for admission requests: %w", err)
	}
	s := &Server{listener: listener}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhooks/{id}", s.review)
	mux.HandleFunc("POST /probes/{id}", probe)
	s.http = &http.Server{
		Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Error("admission server ended", "error", err)
		}
	}()
	return s, nil
}

// url is where the API server asks about a rule.
func (s *Server) url(id string) string { return s.base() + "/webhooks/" + id }

// probeURL is where the API server asks once it knows of a rule.
func (s *Server) probeURL(id string) string { return s.base() + "/probes/" + id }

func (s *Server) base() string { return "https://" + s.listener.Addr().String() }

// Close ends the server, and all requests that hang.
func (s *Server) Close() error {
	s.mu.Lock()
	for _, r := range s.rules {
		close(r.removed)
	}
	s.rules = nil
	s.mu.Unlock()
	return s.http.Close()
}

// add validates a rule and adds it.
func (s *Server) add(ask control.Admission) (control.Admission, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if ask.ID == "" {
		ask.ID = "webhook-" + strconv.Itoa(s.count)
	}
	if err := validate(ask); err != nil {
		return ask, err
	}
	if s.indexLocked(ask.ID) >= 0 {
		return ask, fmt.Errorf("there is a webhook %q already: remove it first", ask.ID)
	}
	ask.Hits = 0
	s.rules = append(s.rules, &rule{ask, chance.New(planOf(ask), ask.Seed, ask.ID), make(chan struct{})})
	return ask, nil
}

func (s *Server) indexLocked(id string) int {
	return slices.IndexFunc(s.rules, func(r *rule) bool { return r.ID == id })
}

// remove takes a rule away: from now on, what it was asked for is allowed.
func (s *Server) remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.indexLocked(id)
	if i < 0 {
		return fmt.Errorf("there is no webhook %q", id)
	}
	close(s.rules[i].removed)
	s.rules = slices.Delete(s.rules, i, i+1)
	return nil
}

// Rules lists the rules with their hits.
func (s *Server) Rules() []control.Admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := make([]control.Admission, 0, len(s.rules))
	for _, r := range s.rules {
		rules = append(rules, r.Admission)
	}
	return rules
}

// find returns the rule of an ID; the zero value if there is none.
func (s *Server) find(id string) control.Admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.indexLocked(id); i >= 0 {
		return s.rules[i].Admission
	}
	return control.Admission{}
}

// firing returns the rule if it applies to a request, and for which time it does.
func (s *Server) firing(id string, request *admissionv1.AdmissionRequest) (r *rule, hit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.indexLocked(id)
	if i < 0 || !matches(s.rules[i].Match, request) || !s.rules[i].chance.Fires() {
		return nil, 0
	}
	r = s.rules[i]
	r.Hits = r.chance.Hits()
	return r, r.Hits
}

// review answers a question about a rule.
func (s *Server) review(w http.ResponseWriter, r *http.Request) {
	answer(w, r, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		allowed := &admissionv1.AdmissionResponse{Allowed: true}
		rule, hit := s.firing(r.PathValue("id"), request)
		if rule == nil {
			return allowed
		}
		return rule.respond(r.Context(), request, allowed, hit)
	})
}

func (r *rule) respond(ctx context.Context, request *admissionv1.AdmissionRequest, allowed *admissionv1.AdmissionResponse, hit int) *admissionv1.AdmissionResponse {
	switch {
	case r.Reject != nil:
		return rejected(*r.Reject, hit)
	case r.Hang != nil:
		r.hang(ctx)
	case len(request.Object.Raw) > 0: // or else it is a delete
		patch, err := patchOf(r.Admission, request.Object.Raw)
		if err != nil {
			return rejected(control.Reject{Codes: []int{http.StatusInternalServerError}, Message: err.Error()}, hit)
		}
		if len(patch) > 0 {
			allowed.Patch, allowed.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
		}
	}
	return allowed
}

func (r *rule) hang(ctx context.Context) {
	var timer <-chan time.Time
	if r.Hang.For >= 0 {
		timer = time.After(r.Hang.For)
	}
	select {
	case <-timer:
	case <-r.removed:
	case <-ctx.Done():
	}
}

// rejected is the answer that rejects a request, for the n-th time.
func rejected(how control.Reject, n int) *admissionv1.AdmissionResponse {
	code, message := http.StatusForbidden, how.Message
	if len(how.Codes) > 0 {
		code = how.Codes[(n-1)%len(how.Codes)]
	}
	if message == "" {
		message = "the webhook of a test rejects it"
	}
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Message: message, Reason: metav1.StatusReason(how.Reason),
	}}
}

// probed is what a probe is answered.
const probed = "the webhook is registered"

// probe tells that the API server asks.
func probe(w http.ResponseWriter, r *http.Request) {
	answer(w, r, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return rejected(control.Reject{Message: probed}, 1)
	})
}

// answer decodes a question and encodes its answer.
func answer(w http.ResponseWriter, r *http.Request, decide func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("parse the AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = decide(review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // an API server that is gone needs no answer
}
