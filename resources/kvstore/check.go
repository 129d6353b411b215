// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

// lockTTL is the TTL of the lease that locks hang on.
const lockTTL = 25 * time.Second

// status checks etcd again and again.
type status struct {
	*conn

	opening   chan struct{} // held by who makes a session, so that there is one
	mu        sync.Mutex
	last      Status
	heartbeat time.Time // when one was last seen, or checking began
	session   *concurrency.Session
	checked   bool
}

func newStatus(c *conn) *status {
	return &status{conn: c, opening: make(chan struct{}, 1), last: Status{Err: errors.New("not connected to etcd yet")}}
}

func (s *status) current() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.last
	now.Leases, now.LeasesLost = len(s.leases.ids()), s.leases.losses()
	if s.session != nil && s.session.Ctx().Err() == nil {
		now.LockLeases = 1
	}
	return now
}

// verdict is what is wrong with etcd, as far as anything was found out.
func (s *status) verdict() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked {
		return nil
	}
	return s.last.Err
}

// job checks every 30 seconds, every 5 while a member is away, and every second
// while etcd cannot be relied upon.
func (s *status) job() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "kvstore check the quorum"})
		s.sawHeartbeat() // none can have been missed so far
		for {
			s.check(ctx)
			pause := s.timing.check
			switch now := s.current(); {
			case now.Err != nil:
				pause = s.timing.checkAgain
			case now.Connected() < len(now.Endpoints):
				pause = s.timing.checkHurry
			}
			if !job.Sleep(ctx, pause) {
				return ctx.Err()
			}
		}
	})
}

// check is one look at everything.
func (s *status) check(ctx context.Context) {
	var (
		quorum    error
		endpoints []EndpointStatus
		parts     sync.WaitGroup // none waits for what hangs in another
	)
	parts.Go(func() {
		if quorum = s.probe(ctx); quorum == nil {
			quorum = s.heartbeatAge()
		}
	})
	parts.Go(func() { endpoints = s.ask(ctx) })
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
		s.metrics.QuorumErrors.WithLabelValues(reason(quorum)).Inc()
	}
	s.mu.Lock()
	before := s.last
	s.last = judge(before, endpoints, quorum, int(s.config.KVStoreMaxConsecutiveQuorumErrors))
	s.checked = true
	s.mu.Unlock()
	s.tell(before, s.current())
}

func (s *status) leaseCheck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timing.checkTimeout)
	defer cancel()
	return s.checkLeases(ctx)
}

// tell reports to health, and to the log when things take a turn.
func (s *status) tell(before, now Status) {
	if now.Err != nil {
		s.health.Degraded("etcd cannot be relied upon", now.Err)
		if before.Err == nil {
			s.log.Warn("etcd cannot be relied upon", "error", now.Err)
		}
		return
	}
	s.health.OK(now.String())
	if before.Err != nil {
		s.log.Debug("etcd is well", "status", now.String())
	}
}

// probe proves that etcd takes writes: it takes a lock that nobody else wants.
func (s *status) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timing.checkTimeout)
	defer cancel()
	if s.gate.overlay != nil {
		return s.readable(ctx)
	}
	session, err := s.lockSession(ctx)
	if err != nil {
		return err
	}
	path := Key(initLockPrefix, strconv.FormatUint(rand.Uint64(), 16))
	lock := concurrency.NewMutex(session, path)
	// To lock what this session has locked already changes nothing.
	err = s.explain("lock", path, untilAnswered(ctx, func() error { return lock.Lock(ctx) }))
	if err == nil {
		err = s.explain("unlock", path, untilAnswered(ctx, func() error { return lock.Unlock(ctx) }))
	}
	if err != nil {
		session.Orphan() // it may be gone, and if not, what was left on it goes with it
	}
	return err
}

// readable proves for a plan, which takes no lock, that etcd has a quorum.
func (s *status) readable(ctx context.Context) error {
	etcd, err := s.etcd(ctx)
	if err == nil {
		_, err = etcd.Get(ctx, HeartbeatKey)
	}
	return s.explain("get", HeartbeatKey, err)
}

// lockSession is the session that locks hang on, a new one if it was lost.
func (s *status) lockSession(ctx context.Context) (*concurrency.Session, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, s.explain("grant a lease for locks", "", context.Cause(ctx))
	}
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

func (s *status) openSession(ctx context.Context) (*concurrency.Session, error) {
	etcd, err := s.etcd(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := etcd.Grant(ctx, int64(lockTTL/time.Second))
	if err != nil {
		return nil, s.explain("grant a lease for locks", "", err)
	}
	session, err := concurrency.NewSession(etcd, concurrency.WithLease(lease.ID), concurrency.WithContext(s.ctx))
	return session, s.explain("keep the lease for locks alive", "", err)
}

// ask asks all members at once.
func (s *status) ask(ctx context.Context) []EndpointStatus {
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
			resp, err := etcd.Status(ctx, url)
			if err != nil {
				answers[i].Err = err
				return
			}
			answers[i].Version, answers[i].Leader = resp.Version, resp.Header.MemberId == resp.Leader
		})
	}
	wg.Wait()
	return answers
}

// watchHeartbeat is the job that follows the heartbeat, which the leading
// operator writes.
func (s *status) watchHeartbeat() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		for e := range (&client{s.conn, "kvstore"}).Watch(ctx, HeartbeatKey) {
			switch {
			case e.Key != HeartbeatKey:
			case e.Kind == Upsert:
				s.sawHeartbeat()
			case e.Kind == Delete:
				// Its lease may be gone, with all that hangs on it.
				if err := s.leaseCheck(ctx); err != nil {
					s.log.Debug("etcd leases could not be checked", "error", err)
				}
			}
		}
		return ctx.Err()
	})
}

func (s *status) sawHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeat = time.Now()
}

func (s *status) heartbeatAge() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := time.Since(s.heartbeat); age > s.timing.heartbeatAge {
		return fmt.Errorf("the heartbeat %s: %w", HeartbeatKey, &heartbeatError{age})
	}
	return nil
}
