// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/semaphore"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

// lockTTL is the TTL of the lease of locks.
const lockTTL = 25 * time.Second

// healthChecker checks etcd periodically.
type healthChecker struct {
	*conn

	sessionLock *semaphore.Weighted // one session is opened at a time
	mu          sync.Mutex
	last        Status
	heartbeat   time.Time // last observed, or the start of the checks
	session     *concurrency.Session
	checked     bool
	contents    contents
}

func newHealthChecker(c *conn) *healthChecker {
	return &healthChecker{conn: c, sessionLock: semaphore.NewWeighted(1), last: Status{Err: errors.New("not connected to etcd yet")}}
}

func (s *healthChecker) current() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.last
	now.Leases, now.LeasesLost = len(s.leases.ids()), s.leases.lostCount()
	if s.session != nil && s.session.Ctx().Err() == nil {
		now.LockLeases = 1
	}
	return now
}

// healthErr returns the error of the last check, if any. Client files that cannot be
// read say nothing about etcd, and a restart does not make them readable: they are not
// reported here.
func (s *healthChecker) healthErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked || errors.Is(s.last.Err, fs.ErrPermission) || errors.Is(s.last.Err, fs.ErrNotExist) {
		return nil
	}
	return s.last.Err
}

// job checks every 30 seconds, every 5 while a member is unreachable, and every second
// while etcd is unhealthy.
func (s *healthChecker) job() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "kvstore check the quorum"})
		s.recordHeartbeat() // the age counts from now
		for {
			s.check(ctx)
			pause := s.timing.check
			switch now := s.current(); {
			case now.Err != nil:
				pause = s.timing.checkUnhealthy
			case now.Connected() < len(now.Endpoints):
				pause = s.timing.checkMemberDown
			}
			if !job.Sleep(ctx, pause) {
				return ctx.Err()
			}
		}
	})
}

// check runs all checks once.
func (s *healthChecker) check(ctx context.Context) {
	var (
		quorum    error
		endpoints []EndpointStatus
		parts     sync.WaitGroup // run in parallel: one that hangs must not delay the others
	)
	parts.Go(func() {
		if quorum = s.probe(ctx); quorum == nil {
			quorum = s.checkHeartbeat()
		}
	})
	parts.Go(func() { endpoints = s.endpointStatuses(ctx) })
	parts.Go(func() {
		if err := s.leaseCheck(ctx); err != nil {
			s.log.Debug("etcd leases could not be checked", "error", err)
		}
	})
	parts.Wait()
	if ctx.Err() != nil {
		return
	}
	if quorum != nil {
		s.metrics.QuorumErrors.WithLabelValues(quorumErrorLabel(quorum)).Inc()
	}
	s.mu.Lock()
	before := s.last
	s.last = evaluate(before, endpoints, quorum, int(s.config.KVStoreMaxConsecutiveQuorumErrors))
	s.last.Err = s.withDialError(s.last.Err)
	s.checked = true
	s.mu.Unlock()
	s.report(before, s.current())
	if quorum == nil && !s.remote {
		s.countKeys(ctx)
	}
}

func (s *healthChecker) leaseCheck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timing.checkTimeout)
	defer cancel()
	return s.checkLeases(ctx)
}

// report updates the health status, and logs transitions.
func (s *healthChecker) report(before, now Status) {
	if now.Err != nil {
		s.reporter.Degraded("etcd unhealthy", now.Err)
		if before.Err == nil {
			s.log.Warn("etcd unhealthy", "error", now.Err)
		}
		return
	}
	s.reporter.OK(now.String())
	if before.Err != nil {
		s.log.Debug("etcd healthy", "status", now.String())
	}
}

// probe checks that etcd accepts writes: it locks and unlocks a random key. Of another cluster it reads a key.
func (s *healthChecker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timing.checkTimeout)
	defer cancel()
	if s.remote || s.interceptor.overlay != nil {
		return s.checkReadable(ctx)
	}
	session, err := s.lockSession(ctx)
	if err != nil {
		return err
	}
	path := Key(initLockPrefix, strconv.FormatUint(rand.Uint64(), 16))
	lock := concurrency.NewMutex(session, path)
	// Lock is idempotent within a session.
	err = s.wrapError("lock", path, retryUnanswered(ctx, func() error { return lock.Lock(ctx) }))
	if err == nil {
		err = s.wrapError("unlock", path, retryUnanswered(ctx, func() error { return lock.Unlock(ctx) }))
	}
	if err != nil {
		session.Orphan() // a lock left behind expires with the lease
	}
	return err
}

// checkReadable checks that etcd has a quorum where no lock is taken: in a dry run, and of another cluster.
func (s *healthChecker) checkReadable(ctx context.Context) error {
	etcd, err := s.awaitClient(ctx)
	if err == nil {
		_, err = etcd.Get(ctx, HeartbeatKey)
	}
	return s.wrapError("get", HeartbeatKey, err)
}

// lockSession returns the session of locks, a new one if its lease was lost.
func (s *healthChecker) lockSession(ctx context.Context) (*concurrency.Session, error) {
	if s.sessionLock.Acquire(ctx, 1) != nil {
		return nil, s.wrapError("grant a lease for locks", "", context.Cause(ctx))
	}
	defer s.sessionLock.Release(1)
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil && session.Ctx().Err() == nil {
		return session, nil
	}
	session, err := s.openSession(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.session = session
	s.mu.Unlock()
	return session, nil
}

func (s *healthChecker) openSession(ctx context.Context) (*concurrency.Session, error) {
	etcd, err := s.awaitClient(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := etcd.Grant(ctx, int64(lockTTL/time.Second))
	if err != nil {
		return nil, s.wrapError("grant a lease for locks", "", err)
	}
	session, err := concurrency.NewSession(etcd, concurrency.WithLease(lease.ID), concurrency.WithContext(s.ctx))
	return session, s.wrapError("keep the lease for locks alive", "", err)
}

// statusRefused stands for the version of a member that answers, and whose status the user may not read.
const statusRefused = "version not permitted"

// endpointStatuses requests the status of all members in parallel.
func (s *healthChecker) endpointStatuses(ctx context.Context) []EndpointStatus {
	var urls []string
	etcd := s.client.Load()
	if etcd != nil {
		urls = etcd.Endpoints()
	}
	answers := make([]EndpointStatus, len(urls))
	var wg sync.WaitGroup
	for i, url := range urls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.timing.checkTimeout)
			defer cancel()
			answers[i].URL = url
			switch resp, err := etcd.Status(ctx, url); {
			case errors.Is(err, rpctypes.ErrPermissionDenied): // of root only, since etcd 3.5
				answers[i].Version = statusRefused
			case err != nil:
				answers[i].Err = err
			default:
				answers[i].Version, answers[i].Leader = resp.Version, resp.Header.MemberId == resp.Leader
			}
		})
	}
	wg.Wait()
	return answers
}

// watchHeartbeat is the job that watches the heartbeat, which the leader writes.
func (s *healthChecker) watchHeartbeat() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		for e := range (&client{s.conn, "kvstore"}).Watch(ctx, HeartbeatKey) {
			switch {
			case e.Key != HeartbeatKey:
			case e.Kind == Upsert:
				s.recordHeartbeat()
			case e.Kind == Delete:
				// Its lease may be lost, with all other keys.
				if err := s.leaseCheck(ctx); err != nil {
					s.log.Debug("etcd leases could not be checked", "error", err)
				}
			}
		}
		return ctx.Err()
	})
}

func (s *healthChecker) recordHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat = time.Now()
}

func (s *healthChecker) checkHeartbeat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := time.Since(s.heartbeat); age > s.timing.maxHeartbeatAge {
		return fmt.Errorf("the heartbeat %s: %w", HeartbeatKey, &heartbeatError{age})
	}
	return nil
}
