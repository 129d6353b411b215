// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/version"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// StrictCause is the environment variable that makes writes without a cause
// fail. Tests set it.
const StrictCause = "SKEP_STRICT_CAUSE"

type doorParams struct {
	cell.In

	Config  Config
	Binary  cell.Binary
	Log     *slog.Logger
	Metrics *clientMetrics
	Book    *explain.Book `optional:"true"`
	Plan    *plan.Plan    `optional:"true"`
}

func provideDoor(p doorParams) (*door, error) {
	d, err := newDoor(p.Config, p.Binary, p.Log, p.Metrics)
	if err != nil {
		return nil, err
	}
	d.book, d.plan = p.Book, p.Plan
	return d, nil
}

func newDoor(c Config, b cell.Binary, log *slog.Logger, m *clientMetrics) (*door, error) {
	quietLibraries(log)
	base, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	s, err := newServers(log, c.urls(), base)
	if err != nil {
		return nil, cell.Invalid(c.serverFlag(), "%v", err)
	}
	dial, err := newDialer(c, base)
	if err != nil {
		return nil, err
	}
	reads, err := dial.newRoute(s, dial.dial)
	if err != nil {
		return nil, err
	}
	return &door{
		log: log, agent: "skep/" + b.Version, servers: s, dialer: dial, metrics: m,
		limiter: fair.New(fair.Limits{Rate: float64(c.QPS), Burst: c.Burst, HeldUp: m.waited}),
		reads:   reads,
		ledger:  newLedger(),
		strict:  os.Getenv(StrictCause) != "",
	}, nil
}

func newLeading(d *door, p *Permissions) (Leading, error) {
	way, err := d.dialer.newRoute(d.servers, d.dialer.dial)
	if err != nil {
		return nil, err
	}
	way.impatient = true
	return &leasing{d, way, p}, nil
}

func newPermissions() *Permissions { return &Permissions{} }

// newFence is the fence of the term that a module lives in, nil for modules of the
// process: for clients of other stores, which must not write either.
func newFence(s cell.Scope, d *door) *Fence {
	if w := d.term.Load(); s.Term != "" && w != nil {
		return w.fence
	}
	return nil
}

// newModuleClient makes the client of a module. In a term it writes under the
// fence of that stay in the term, and never under that of another.
func newModuleClient(s cell.Scope, d *door, p *Permissions) (Client, error) {
	m := &moduleDoor{door: d, module: s.ID}
	if s.Term != "" {
		m.writer = d.term.Load()
	}
	return newClient(m, p)
}

// Server tells about the API server as a whole.
type Server interface {
	// Version asks for the version. It is the check of the contract's health
	// endpoint, and needs an answer within the context's time.
	Version(ctx context.Context) (*version.Info, error)
	// Address is the URL of the server in use.
	Address() string
}

type server struct{ *door }

func newServer(d *door) Server { return server{d} }

func (s server) Address() string { return s.servers.url().String() }

func (s server) Version(ctx context.Context) (*version.Info, error) {
	body, status, err := s.get(ctx, "/version")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET /version answered %d %s", status, http.StatusText(status))
	}
	info := &version.Info{}
	return info, json.Unmarshal(body, info)
}

const (
	// connectPause bounds the pauses between attempts to reach the API server.
	connectPause = 5 * time.Second
	// connectLimit bounds one attempt.
	connectLimit = 15 * time.Second
)

// newConnector tells when the API server is reached for the first time, and
// compares what the role allows with what modules need. It tries for ever.
func newConnector(d *door, c Client, p *Permissions, g graph.Source, tree *health.Tree, log *slog.Logger) (job.Job, error) {
	reviews, err := authorizationclient.NewForConfig(c.RESTConfig())
	return job.OneShot(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		if err := d.healthz(ctx); err != nil {
			return err
		}
		if err := p.check(ctx, reviews, g(), tree, log); err != nil {
			return err
		}
		log.Info("connected to the API server", "server", d.servers.url().String())
		return nil
	}, job.Retry(250*time.Millisecond, connectPause)), err
}

func newHeartbeat(c Config, d *door) (job.Job, error) {
	if c.K8sHeartbeatTimeout == 0 {
		return job.OneShot(func(context.Context) error { return nil }), nil
	}
	h := &heartbeat{door: d, timeout: c.K8sHeartbeatTimeout}
	return job.Timer(h.beat, c.K8sHeartbeatTimeout, job.StartLater()), nil
}
