// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// OperatorPath is the path of the operator's own SPIFFE ID, which the SPIRE server has in its admin_ids.
const OperatorPath = "/cilium-operator"

// workload is the operator as a workload of the SPIRE agent: its own certificate and the certificate authorities of trust
// domains, as the agent last sent them.
type workload struct {
	socket string
	domain spiffeid.TrustDomain
	self   spiffeid.ID

	mu      sync.Mutex
	svid    *x509svid.SVID  // nil: there is none
	bundles *x509bundle.Set // nil: there are none
	err     error           // why there is no certificate, or no other one, nil while the agent has not answered
	changed chan struct{}   // closed and replaced when one of these changes
	sent    time.Time       // when the agent sent the certificate, or authorities
	arrived chan struct{}   // closed and replaced then
}

func newWorkload(c Config) (*workload, error) {
	domain, err := c.trustDomain()
	if err != nil {
		return nil, err
	}
	self, err := spiffeid.FromPath(domain, OperatorPath)
	return &workload{socket: c.MeshAuthSPIREAgentSocket, domain: domain, self: self, changed: make(chan struct{}), arrived: make(chan struct{})}, err
}

// run watches the Workload API until ctx ends.
func (w *workload) run(ctx context.Context) error {
	client, err := workloadapi.New(ctx, workloadapi.WithAddr("unix://"+w.socket), workloadapi.WithBackoffStrategy(doubling{}),
		workloadapi.WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: firstPause, Multiplier: 2, MaxDelay: longestWatchPause}, MinConnectTimeout: longestPause,
		})))
	if err != nil {
		return fmt.Errorf("opening the Workload API at %s: %w", w.socket, err)
	}
	defer client.Close()
	err = client.WatchX509Context(ctx, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watching the Workload API at %s: %w", w.socket, err)
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (w *workload) OnX509ContextUpdate(update *workloadapi.X509Context) {
	var own *x509svid.SVID
	err := fmt.Errorf("the SPIRE agent has no certificate of %s for this pod", w.self)
	for _, svid := range update.SVIDs {
		if svid.ID == w.self {
			own, err = svid, nil
			break
		}
		err = fmt.Errorf("the SPIRE agent knows this pod as %s, and not as %s: register it with the selectors of its namespace and service account", svid.ID, w.self)
	}
	w.set(own, update.Bundles, err)
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher. A certificate is used until it expires.
func (w *workload) OnX509ContextWatchError(err error) {
	w.mu.Lock()
	svid, bundles := w.svid, w.bundles
	w.mu.Unlock()
	w.set(svid, bundles, fmt.Errorf("the SPIRE agent at %s gives this pod no certificate: %w", w.socket, err))
}

func (w *workload) set(svid *x509svid.SVID, bundles *x509bundle.Set, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.svid, w.bundles, w.err = svid, bundles, err
	close(w.changed)
	w.changed = make(chan struct{})
	if err == nil {
		close(w.arrived)
		w.arrived, w.sent = make(chan struct{}), time.Now()
	}
}

// arrival is closed when the agent sends the certificate, or authorities, the next time.
func (w *workload) arrival() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.arrived
}

// ended is why servers do not accept the operator any more, nil while its certificate has not ended. It is used all the same: the clock of
// the server decides.
func (w *workload) ended(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.svid == nil || !now.After(w.svid.Certificates[0].NotAfter) {
		return nil
	}
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	err := fmt.Errorf("the operator's own certificate ended at %s, and the SPIRE agent at %s has not answered with another since %s", text(w.svid.Certificates[0].NotAfter), w.socket, text(w.sent))
	if w.err != nil {
		err = fmt.Errorf("%w: %w", err, w.err)
	}
	return err
}

// arrivalError is the error of an attempt that is repeated as soon as the agent sends a certificate, or authorities: they may be what it lacked.
type arrivalError struct {
	error
	arrived <-chan struct{}
}

func (e *arrivalError) Unwrap() error { return e.error }

// Awaited has the work queue end the back-off.
func (e *arrivalError) Awaited() <-chan struct{} { return e.arrived }

// await returns when there is a certificate, or why there is none.
func (w *workload) await(ctx context.Context) error {
	for {
		w.mu.Lock()
		svid, err, changed := w.svid, w.err, w.changed
		w.mu.Unlock()
		if svid != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the SPIRE agent at %s does not answer: %w", w.socket, ctx.Err())
		}
	}
}

var errNoCertificate = errors.New("there is no certificate")

// GetX509SVID implements x509svid.Source.
func (w *workload) GetX509SVID() (*x509svid.SVID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.svid == nil {
		return nil, errors.Join(errNoCertificate, w.err)
	}
	return w.svid, nil
}

// GetX509BundleForTrustDomain implements x509bundle.Source.
func (w *workload) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bundles == nil {
		return nil, errors.Join(errNoCertificate, w.err)
	}
	return w.bundles.GetX509BundleForTrustDomain(domain)
}

// tls authenticates with the certificate of the moment, and accepts servers with any SPIFFE ID of the trust domain.
func (w *workload) tls() *tls.Config {
	return tlsconfig.MTLSClientConfig(w, w, tlsconfig.AuthorizeMemberOf(w.domain))
}

// longestWatchPause is the longest pause between attempts to watch the Workload API. The agent is on the same node, and an entry for the operator
// is worth nothing before the next one.
const longestWatchPause = 2 * time.Second

// doubling is the back-off of the Workload API's watch.
type doubling struct{}

// NewBackoff implements workloadapi.BackoffStrategy.
func (doubling) NewBackoff() workloadapi.Backoff { return &pause{} }

type pause struct{ last time.Duration }

// Next implements workloadapi.Backoff.
func (p *pause) Next() time.Duration {
	p.last = min(max(firstPause, 2*p.last), longestWatchPause)
	return p.last
}

// Reset implements workloadapi.Backoff.
func (p *pause) Reset() { p.last = 0 }
