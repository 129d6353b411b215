// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package etcd

import (
	"context"
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Restore kills all members, replaces their data by that of a snapshot, as etcdutl does, and starts them again on their
// ports. It returns when they have a quorum.
func (c *Cluster) Restore(ctx context.Context, file string) error {
	for _, m := range c.members {
		if _, err := c.controlled(m.Name); err != nil {
			return err
		}
		c.mu.Lock()
		runs := c.runningLocked(m.Name) != nil
		c.mu.Unlock()
		if !runs {
			continue
		}
		if err := c.KillMember(m.Name); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.restore(file); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := c.StartMember(m.Name); err != nil {
			return err
		}
	}
	return c.awaitQuorum(ctx)
}

// restore replaces the data of a member that does not run.
func (m member) restore(file string) error {
	if err := os.RemoveAll(m.DataDir); err != nil {
		return fmt.Errorf("delete the data of etcd member %s: %w", m.Name, err)
	}
	cfg, err := m.config()
	if err != nil {
		return fmt.Errorf("configure etcd member %s: %w", m.Name, err)
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: m.Name, OutputDataDir: m.DataDir,
		PeerURLs: []string{m.peerURL()}, InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken,
	})
	if err != nil {
		return fmt.Errorf("restore etcd member %s from %s: %w", m.Name, file, err)
	}
	return nil
}
