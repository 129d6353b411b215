// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// conn is shared by the clients of all modules: one connection, its leases and its
// rate limit. It lives for one term.
type conn struct {
	config   Config
	options  options
	timing   timing
	log      *slog.Logger
	reporter health.Reporter
	metrics  *storeMetrics
	remote   bool // of another cluster: it is only read

	interceptor  *interceptor
	dialer       *dialer
	dialErrors   *dialErrors
	restores     *restoreDetector
	limiter      *fair.Limiter
	locks        keyLocks
	leases       *leases
	restoreQueue *reconcile.Queue[string]
	health       *healthChecker

	ctx        context.Context // ends with the connection
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	client    atomic.Pointer[clientv3.Client]
	endpoints atomic.Pointer[fileConfig]
	opened    chan struct{} // client is set
	connected chan struct{}
}

// timing holds timeouts and intervals, which tests shorten.
type timing struct {
	operation         time.Duration // timeout of one read or write
	attempt           time.Duration // timeout of one attempt of it
	check             time.Duration // between status checks
	checkMemberDown   time.Duration // the same while a member is unreachable
	checkUnhealthy    time.Duration // the same while etcd is unhealthy
	checkTimeout      time.Duration // timeout of each part of a check
	maxHeartbeatAge   time.Duration // the oldest heartbeat that proves a quorum
	maxReconnectDelay time.Duration // between attempts to connect
	maxRelistDelay    time.Duration // between attempts to list or watch
	maxMessage        int           // bytes of an answer of etcd
}

var defaultTiming = timing{
	operation: 30 * time.Second, attempt: 3 * time.Second,
	check: 30 * time.Second, checkMemberDown: 5 * time.Second, checkUnhealthy: time.Second, checkTimeout: 10 * time.Second,
	maxHeartbeatAge:   2 * time.Minute,
	maxReconnectDelay: 3 * time.Second,
	maxRelistDelay:    maxRetryDelay,
	maxMessage:        maxMessage,
}

// checkTimeoutVariable is the environment variable that overrides the timeout of
// status checks.
const checkTimeoutVariable = "CILIUM_ETCD_STATUS_CHECK_INTERVAL"

func newTiming(log *slog.Logger) timing {
	t := defaultTiming
	if text := os.Getenv(checkTimeoutVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			log.Warn("ignoring environment variable: must be a duration such as 10s", "name", checkTimeoutVariable, "value", text)
			return t
		}
		t.checkTimeout = d
	}
	return t
}

type connParams struct {
	Config   Config
	Fence    Fence  // nil: no writes
	Services getter // nil: endpoints are resolved by DNS only
	Scope    reconcile.Deps
	Metrics  *storeMetrics
	Book     *explain.History // nil: writes are not recorded
	Plan     *dryrun.Plan     // nil: a real run
	Timing   timing
	Remote   bool
}

func newConn(p connParams) (*conn, error) {
	o, errs := parseOptions(p.Config.KVStoreOpt)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, key := range ignoredOptions {
		if _, ok := p.Config.KVStoreOpt[key]; ok {
			p.Scope.Log.Warn("ignoring obsolete option", "flag", "kvstore-opt", "key", key)
		}
	}
	c := &conn{
		config: p.Config, options: o, timing: p.Timing,
		log: p.Scope.Log, reporter: p.Scope.Health.Child("etcd"), metrics: p.Metrics, remote: p.Remote,
		dialErrors: newDialErrors(), restores: newRestoreDetector(),
		limiter: fair.New(fair.Limits{Rate: float64(o.qps), Burst: o.qps, AtOnce: o.inFlight}),
		locks:   keyLocks{locks: map[string]*keyLock{}},
		leases:  newLeases(p.Config.KVStoreLeaseTTL),
		opened:  make(chan struct{}), connected: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.dialer = newDialer(p.Fence, serviceAddresses{p.Services}, c.dialErrors)
	c.interceptor = &interceptor{fence: p.Fence, attemptTimeout: p.Timing.attempt, strictCause: os.Getenv(k8s.StrictCause) != "", onMissingCause: p.Metrics.Uncaused.Inc, history: p.Book, restores: c.restores, overlay: newOverlay(p.Plan)}
	if p.Plan != nil {
		p.Plan.Observe(c.load)
	}
	c.health = newHealthChecker(c)
	p.Scope.Health = p.Scope.Health.Child("restore")
	c.restoreQueue = reconcile.NewQueue(p.Scope, "restore a leased key", c.restoreKey, reconcile.Backoff(initialRetryDelay, maxRetryDelay))
	c.leases.grant = c.grantLease
	c.leases.restore = func(key string, lease LeaseID) {
		c.restoreQueue.Add(key, k8s.Trigger{Kind: "EtcdLease", Name: lease.String()})
	}
	c.leases.onLost = func(id LeaseID, keys int) {
		c.metrics.LeasesLost.Inc()
		c.log.Warn("etcd lease lost, restoring its keys", "lease", id.String(), "keys", keys)
	}
	var lines restoreLines
	c.restores.onRestore(func() {
		if skipped, due := lines.next(time.Now()); due {
			c.log.Warn("etcd data was restored or replaced, listing and writing all keys again", "skippedBefore", skipped)
		}
		for _, id := range c.leases.ids() {
			c.leases.markLost(id)
		}
	})
	return c, nil
}

// Start implements lifecycle.Hook. A job connects.
func (c *conn) Start(context.Context) error { return nil }

// Stop closes the connection. Leases are not revoked: their keys stay until a
// successor takes them over or the TTL ends.
func (c *conn) Stop(ctx context.Context) error {
	c.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if client := c.client.Load(); client != nil {
			_ = client.Close() // returns only that its context has ended
		}
		c.goroutines.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the connection to etcd: %w", context.Cause(ctx))
	}
}

// connect is the job that makes the first connection. It retries without limit.
func (c *conn) connect() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if err := c.open(ctx); err != nil {
			return err
		}
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "kvstore connect"})
		if err := c.health.probe(ctx); err != nil {
			return err
		}
		close(c.connected)
		c.log.Info("connected to etcd", "endpoints", strings.Join(c.endpoints.Load().Endpoints, ","))
		return nil
	}, job.Retry(min(250*time.Millisecond, c.timing.maxReconnectDelay), c.timing.maxReconnectDelay))
}

// open creates etcd's client, once.
func (c *conn) open(ctx context.Context) error {
	if c.client.Load() != nil {
		return nil
	}
	file, err := c.options.load()
	c.dialErrors.set("read the configuration", err)
	if err != nil {
		return err
	}
	rand.Shuffle(len(file.Endpoints), func(i, j int) {
		file.Endpoints[i], file.Endpoints[j] = file.Endpoints[j], file.Endpoints[i]
	})
	c.endpoints.Store(&file)
	client, err := c.newClient(ctx, file)
	if err != nil {
		return c.wrapError("connect", "", err)
	}
	c.client.Store(client)
	close(c.opened)
	return nil
}

// reconnectBackoff replaces gRPC's default, which grows to two minutes: the client
// should recover as soon as etcd does.
var reconnectBackoff = backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 1500 * time.Millisecond}

// maxMessage is how large an answer of etcd may be, in bytes: a page of keys that others write would fill the memory. It is
// above what the largest values with which etcd is run need, one at a time.
const maxMessage = 16 << 20

// newClient creates etcd's client. With a user it authenticates at once, bounded by
// the check timeout and ctx.
func (c *conn) newClient(ctx context.Context, file fileConfig) (*clientv3.Client, error) {
	security := insecure.NewCredentials()
	if file.secure() {
		security = newCredentials(file, c.dialErrors)
	}
	life, cancel := context.WithCancel(c.ctx)
	stop := context.AfterFunc(ctx, cancel)
	config := file.Config
	config.Context, config.Logger = life, zapLogger(c.log)
	config.DialTimeout = c.timing.checkTimeout
	config.MaxCallRecvMsgSize = c.timing.maxMessage
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = c.options.keepAlive, c.options.keepAliveTimeout
	config.DialOptions = []grpc.DialOption{
		grpc.WithContextDialer(c.dialer.dial),
		grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnectBackoff, MinConnectTimeout: dialTimeout}),
		grpc.WithChainUnaryInterceptor(c.interceptor.unary),
		grpc.WithChainStreamInterceptor(c.interceptor.stream),
	}
	client, err := clientv3.New(config)
	if !stop() && err == nil { // ctx ended meanwhile
		err = errors.Join(context.Cause(ctx), client.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return client, nil
}

// awaitClient returns etcd's client as soon as it is created.
func (c *conn) awaitClient(ctx context.Context) (*clientv3.Client, error) {
	if err := c.await(ctx, c.opened); err != nil {
		return nil, err
	}
	return c.client.Load(), nil
}

// await waits for a state of the connection, reached when the channel is closed.
func (c *conn) await(ctx context.Context, reached <-chan struct{}) error {
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return c.wrapError("connect", "", context.Cause(ctx))
	case <-c.ctx.Done():
		return errors.New("the connection to etcd is closed")
	}
}

// wrapError adds the operation, the key, the endpoints, the user and the last
// connection error to an error.
func (c *conn) wrapError(operation, subject string, err error) error {
	if err == nil {
		return nil
	}
	what := operation
	if subject != "" {
		what += " " + subject
	}
	if errors.Is(err, leading.ErrFenced) || errors.Is(err, k8s.ErrReadOnly) || errors.Is(err, k8s.ErrNoCause) {
		return fmt.Errorf("%s: %w", what, err)
	}
	where := "no endpoints known yet"
	if f := c.endpoints.Load(); f != nil {
		where = f.String()
	}
	var known rpctypes.EtcdError
	if errors.As(err, &known) && !isAuthError(err) {
		return fmt.Errorf("etcd %s: %s: %w", where, what, err) // etcd has answered
	}
	return fmt.Errorf("etcd %s: %s: %w", where, what, c.withDialError(err))
}

// withDialError adds the last connection error, if there is one.
func (c *conn) withDialError(err error) error {
	if why := c.dialErrors.first(); err != nil && why != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w (%w)", err, why)
	}
	return err
}

// isAuthError reports whether etcd rejected the user or a permission is missing.
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
