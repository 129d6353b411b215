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

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// StrictCause is the environment variable that makes writes without a cause
// fail. Tests set it.
const StrictCause = "SKEP_STRICT_CAUSE"

type transportParams struct {
	cell.In

	Config  Config
	Binary  cell.BuildInfo
	Log     *slog.Logger
	Metrics *clientMetrics
	Graph   graph.Source
	Tree    *health.Tree
	History *explain.History `optional:"true"`
	Plan    *dryrun.Plan     `optional:"true"`
}

func provideTransport(p transportParams) (*guardedTransport, error) {
	d, err := newTransport(p.Config, p.Binary, p.Log, p.Metrics)
	if err != nil {
		return nil, err
	}
	d.history, d.plan = p.History, p.Plan
	d.asked = &undeclared{graph: p.Graph, tree: p.Tree, log: p.Log}
	return d, nil
}

func newTransport(c Config, b cell.BuildInfo, log *slog.Logger, m *clientMetrics) (*guardedTransport, error) {
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
	reads, err := dial.newEndpointTransport(s, dial.dial)
	if err != nil {
		return nil, err
	}
	d := &guardedTransport{
		log: log, agent: "skep/" + b.Version, servers: s, dialer: dial, metrics: m,
		limiter:  fair.New(fair.Limits{Rate: float64(c.QPS), Burst: c.Burst, HeldUp: m.waited}),
		reads:    reads,
		progress: leading.NewTracker(), contention: newContention(), served: newServedVersions(log),
		strict: os.Getenv(StrictCause) != "", answerLimit: answerLimit,
	}
	d.unserved = newUnserved(d)
	return d, nil
}

func newSession(d *guardedTransport, p *Permissions) (leading.Session, error) {
	way, err := d.dialer.newEndpointTransport(d.servers, d.dialer.dial)
	if err != nil {
		return nil, err
	}
	way.resetOnTimeout = true
	return &session{d, way, p}, nil
}

func newPermissions() *Permissions { return &Permissions{} }

// newFence is the fence of the term that a module lives in, nil for modules of the
// process: for clients of other stores, which must not write either.
func newFence(s cell.ModuleInfo, d *guardedTransport) *leading.Fence {
	if w := d.term.Load(); s.Term != "" && w != nil {
		return w.fence
	}
	return nil
}

type clientParams struct {
	cell.In

	Transport   *guardedTransport
	Permissions *Permissions
	Health      health.Reporter
	Log         *slog.Logger
}

// newModuleClient makes the client of a module. In a term it writes under the
// fence of that stay in the term, and never under that of another.
func newModuleClient(s cell.ModuleInfo, p clientParams) (Client, error) {
	m := &moduleTransport{guardedTransport: p.Transport, module: s.ID}
	if s.Term != "" {
		m.writer = p.Transport.term.Load()
	}
	if m.writer == nil || p.Transport.plan != nil {
		return newClient(m, p.Permissions, nil)
	}
	report := newContentionReport(p.Transport.contention, p.Health, p.Log)
	m.writer.fence.OnClose(report.stop)
	return newClient(m, p.Permissions, report)
}

// Server tells about the API server as a whole.
type Server interface {
	// Version asks for the version. It is the check of the contract's health
	// endpoint, and needs an answer within the context's time.
	Version(ctx context.Context) (*version.Info, error)
	// Address is the URL of the server in use.
	Address() string
}

type server struct{ *guardedTransport }

func newServer(d *guardedTransport) Server { return server{d} }

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
func newConnector(d *guardedTransport, r *roleCheck, log *slog.Logger) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		if err := d.healthz(ctx); err != nil {
			return err
		}
		if err := r.check(ctx); err != nil {
			return err
		}
		log.Info("connected to the API server", "server", d.servers.url().String())
		return nil
	}, job.Retry(250*time.Millisecond, connectPause))
}

// newRoleJob looks whether the role has changed, as long as it lacks something.
func newRoleJob(r *roleCheck) job.Job {
	return job.Timer(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		return r.again(ctx)
	}, roleCheckInterval, job.DelayFirstRun())
}

func newHeartbeat(c Config, d *guardedTransport) (job.Job, error) {
	if c.K8sHeartbeatTimeout == 0 {
		return job.OneShot(func(context.Context) error { return nil }), nil
	}
	h := &heartbeat{transport: d, timeout: c.K8sHeartbeatTimeout}
	return job.Timer(h.beat, c.K8sHeartbeatTimeout, job.DelayFirstRun()), nil
}
