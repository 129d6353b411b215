// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package balance passes connections and datagrams on to backends by their weights, without looking into them: the ports of
// Services that agents send to no proxy.
package balance
