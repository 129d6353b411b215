// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// conn is what the clients of all modules share: one connection, its leases and
// its rate. It lives for one term.
type conn struct {
	config  Config
	options options
	timing  timing
	log     *slog.Logger
	health  health.Reporter
	metrics *storeMetrics

	gate     *gate
	dialer   *dialer
	failures *failures
	data     *lineage
	limiter  *fair.Limiter
	locks    keyLocks
	leases   *leases
	restore  *reconcile.Loop[string]
	status   *status

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	work   sync.WaitGroup

	client    atomic.Pointer[clientv3.Client]
	endpoints atomic.Pointer[fileConfig]
	opened    chan struct{} // client is set
	connected chan struct{}
}

// timing is what tests shorten.
type timing struct {
	operation    time.Duration // limit of one read or write
	attempt      time.Duration // limit of one attempt at it
	check        time.Duration // between status checks
	checkHurry   time.Duration // the same while an endpoint is away
	checkAgain   time.Duration // the same while etcd cannot be relied upon
	checkTimeout time.Duration // limit of each part of a check
	heartbeatAge time.Duration // the oldest heartbeat that proves a quorum
	reopen       time.Duration // longest pause between attempts to connect
	relist       time.Duration // longest pause between attempts to list or watch
}

var defaultTiming = timing{
	operation: 30 * time.Second, attempt: 3 * time.Second,
	check: 30 * time.Second, checkHurry: 5 * time.Second, checkAgain: time.Second, checkTimeout: 10 * time.Second,
	heartbeatAge: 2 * time.Minute,
	reopen:       3 * time.Second,
	relist:       longestRetry,
}

// checkTimeoutVariable is the environment variable that replaces the time limit
// of status checks.
const checkTimeoutVariable = "CILIUM_ETCD_STATUS_CHECK_INTERVAL"

func newTiming(log *slog.Logger) timing {
	t := defaultTiming
	if text := os.Getenv(checkTimeoutVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			log.Warn("environment variable ignored: must be a duration such as 10s", "name", checkTimeoutVariable, "value", text)
			return t
		}
		t.checkTimeout = d
	}
	return t
}

type connParams struct {
	Config   Config
	Fence    Fence  // nil: no writes
	Services getter // nil: etcd is found by DNS alone
	Scope    reconcile.Scope
	Metrics  *storeMetrics
	Book     *explain.Book // nil: writes are not remembered
	Plan     *plan.Plan    // nil: a real run
	Timing   timing
}

func newConn(p connParams) (*conn, error) {
	o, errs := parseOptions(p.Config.KVStoreOpt)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, key := range ignoredOptions {
		if _, ok := p.Config.KVStoreOpt[key]; ok {
			p.Scope.Log.Warn("option has no effect any more", "flag", "kvstore-opt", "key", key)
		}
	}
	c := &conn{
		config: p.Config, options: o, timing: p.Timing,
		log: p.Scope.Log, health: p.Scope.Health.Part("etcd"), metrics: p.Metrics,
		failures: newFailures(), data: newLineage(),
		limiter: fair.New(fair.Limits{Rate: float64(o.qps), Burst: o.qps, AtOnce: o.inFlight}),
		locks:   keyLocks{locks: map[string]*keyLock{}},
		leases:  newLeases(p.Config.KVStoreLeaseTTL),
		opened:  make(chan struct{}), connected: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.dialer = newDialer(p.Fence, serviceAddresses{p.Services}, c.failures)
	c.gate = &gate{fence: p.Fence, limit: p.Timing.attempt, strict: os.Getenv(k8s.StrictCause) != "", uncaused: p.Metrics.Uncaused.Inc, book: p.Book, data: c.data, overlay: newOverlay(p.Plan)}
	if p.Plan != nil {
		p.Plan.Observe(c.load)
	}
	c.status = newStatus(c)
	p.Scope.Health = p.Scope.Health.Part("restore")
	c.restore = reconcile.New(p.Scope, "restore a leased key", c.restoreKey, reconcile.Pauses(firstRetry, longestRetry))
	c.leases.grant = c.grantLease
	c.leases.restore = func(key string, lease LeaseID) {
		c.restore.Add(key, k8s.Trigger{Kind: "EtcdLease", Name: lease.String()})
	}
	c.leases.tell = func(id LeaseID, keys int) {
		c.metrics.LeasesLost.Inc()
		c.log.Warn("etcd lease lost, writing its keys again", "lease", id.String(), "keys", keys)
	}
	c.data.then(func() {
		c.log.Warn("etcd's data was replaced, reading and writing all of it again")
		for _, id := range c.leases.ids() {
			c.leases.lose(id)
		}
	})
	return c, nil
}

// Start implements lifecycle.Hook. Connecting is a job's business.
func (c *conn) Start(context.Context) error { return nil }

// Stop closes the connection. Leases are left alone: what hangs on them stays
// until a successor takes it over, or their time is up.
func (c *conn) Stop(ctx context.Context) error {
	c.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client := c.client.Load(); client != nil {
			_ = client.Close() // its context has ended: that is all it says
		}
		c.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the connection to etcd: %w", context.Cause(ctx))
	}
}

// connect is the job that reaches etcd for the first time. It tries for ever.
func (c *conn) connect() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if err := c.open(ctx); err != nil {
			return err
		}
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "kvstore connect"})
		if err := c.status.probe(ctx); err != nil {
			return err
		}
		close(c.connected)
		c.log.Info("connected to etcd", "endpoints", strings.Join(c.endpoints.Load().Endpoints, ","))
		return nil
	}, job.Retry(min(250*time.Millisecond, c.timing.reopen), c.timing.reopen))
}

// open makes the client, once.
func (c *conn) open(ctx context.Context) error {
	if c.client.Load() != nil {
		return nil
	}
	file, err := c.options.load()
	if err != nil {
		return err
	}
	rand.Shuffle(len(file.Endpoints), func(i, j int) {
		file.Endpoints[i], file.Endpoints[j] = file.Endpoints[j], file.Endpoints[i]
	})
	c.endpoints.Store(&file)
	client, err := c.newClient(ctx, file)
	if err != nil {
		return c.explain("connect", "", err)
	}
	c.client.Store(client)
	close(c.opened)
	return nil
}

// redial is how often gRPC tries to connect: more often than by default, whose
// pauses grow to two minutes. An outage should end when it ends.
var redial = backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 1500 * time.Millisecond}

// newClient makes a client. With a user it authenticates at once, and gives up
// after a while, or when ctx ends.
func (c *conn) newClient(ctx context.Context, file fileConfig) (*clientv3.Client, error) {
	security := insecure.NewCredentials()
	if file.secure() {
		security = newCredentials(file, c.failures)
	}
	life, cancel := context.WithCancel(c.ctx)
	stop := context.AfterFunc(ctx, cancel)
	client, err := clientv3.New(clientv3.Config{
		Context: life, Endpoints: file.Endpoints, Logger: quietLogger(c.log),
		Username: file.Username, Password: file.Password,
		DialTimeout:       c.timing.checkTimeout,
		DialKeepAliveTime: c.options.keepAlive, DialKeepAliveTimeout: c.options.keepAliveTimeout,
		PermitWithoutStream: file.PermitWithoutStream, RejectOldCluster: file.RejectOldCluster,
		AutoSyncInterval: file.AutoSyncInterval, MaxUnaryRetries: file.MaxUnaryRetries,
		BackoffWaitBetween: file.BackoffWaitBetween, BackoffJitterFraction: file.BackoffJitterFraction,
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dialer.dial(ctx, address) }),
			grpc.WithTransportCredentials(security),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout}),
			grpc.WithChainUnaryInterceptor(c.gate.unary),
			grpc.WithChainStreamInterceptor(c.gate.stream),
		},
	})
	if !stop() && err == nil { // ctx ended meanwhile
		err = errors.Join(context.Cause(ctx), client.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return client, nil
}

// etcd is the client, once there is one.
func (c *conn) etcd(ctx context.Context) (*clientv3.Client, error) {
	if err := c.await(ctx, c.opened); err != nil {
		return nil, err
	}
	return c.client.Load(), nil
}

// await waits until the connection has reached what the channel tells.
func (c *conn) await(ctx context.Context, reached <-chan struct{}) error {
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return c.explain("connect", "", context.Cause(ctx))
	case <-c.ctx.Done():
		return errors.New("the connection to etcd is closed")
	}
}

// explain says of an error which operation, key, endpoints and user it is
// about, and why they cannot be reached.
func (c *conn) explain(operation, subject string, err error) error {
	if err == nil {
		return nil
	}
	what := operation
	if subject != "" {
		what += " " + subject
	}
	if errors.Is(err, k8s.ErrFenced) || errors.Is(err, k8s.ErrReadOnly) || errors.Is(err, k8s.ErrNoCause) {
		return fmt.Errorf("%s: %w", what, err)
	}
	var known rpctypes.EtcdError
	if errors.As(err, &known) && !isAuthError(err) {
		return fmt.Errorf("etcd: %s: %w", what, err)
	}
	where := "no endpoints known yet"
	if f := c.endpoints.Load(); f != nil {
		where = strings.Join(f.Endpoints, ",")
		if f.Username != "" {
			where += fmt.Sprintf(" as user %q", f.Username)
		}
	}
	if why := c.failures.any(); why != nil && !errors.Is(err, why) {
		return fmt.Errorf("etcd %s: %s: %w (%w)", where, what, err, why)
	}
	return fmt.Errorf("etcd %s: %s: %w", where, what, err)
}

// isAuthError reports whether etcd does not know or does not like the user.
func isAuthError(err error) bool {
	for _, auth := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty,
		rpctypes.ErrUserNotFound, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	} {
		if errors.Is(err, auth) {
			return true
		}
	}
	return false
}
